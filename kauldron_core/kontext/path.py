"""`Path`: a parsed path as a value that reads, writes and joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeAlias, overload

from kauldron_core import paths
from kauldron_core.kontext import lookup as _lookup
from kauldron_core.kontext import writing
from kauldron_core.paths import Part, PathSyntaxError, Wildcard

Context: TypeAlias = Any
"""Any tree that paths lead into: dicts, lists, dataclasses, arrays, objects."""

PathInput: TypeAlias = "str | tuple[Part, ...] | AbstractPath"
"""A path as text, as parts, or parsed."""


class AbstractPath(Sequence[Part]):
    """A sequence of parts. It prints as the text it was parsed from, spaces aside."""

    _ALLOWS_WILDCARDS: ClassVar[bool]

    def __init__(self, *parts: Part):
        for part in parts:
            if isinstance(part, Wildcard) and not self._ALLOWS_WILDCARDS:
                raise PathSyntaxError(f"path {paths.format(parts)!r}: a {type(self).__name__} takes no wildcards")
        self.parts: tuple[Part, ...] = parts

    @classmethod
    def from_str(cls, text: str) -> Self:
        """Returns the path written in `text`."""
        return cls(*paths.parse(text, glob=cls._ALLOWS_WILDCARDS))

    @classmethod
    def from_jax_path(cls, jax_path: Sequence[Any]) -> Self:
        """Returns the path of a leaf as `jax.tree_util.tree_flatten_with_path` names it."""
        return cls(*(_from_jax_key(entry) for entry in jax_path))

    def join(self, *others: str | AbstractPath) -> Self:
        """Returns this path followed by `others`."""
        parts = list(self.parts)
        for other in others:
            parts.extend(other.parts if isinstance(other, AbstractPath) else type(self).from_str(other).parts)
        return type(self)(*parts)

    def __truediv__(self, other: str | AbstractPath) -> Self:
        return self.join(other)

    def is_relative_to(self, other: str | AbstractPath) -> bool:
        """Returns whether this path starts with the parts of `other`."""
        start = other if isinstance(other, AbstractPath) else type(self).from_str(other)
        return _equal(self.parts[: len(start)], start.parts)

    def relative_to(self, other: str | AbstractPath) -> Self:
        """Returns the rest of this path below `other`.

        Raises:
          ValueError: When this path does not start with `other`.
        """
        if not self.is_relative_to(other):
            raise ValueError(f"path {str(self)!r} does not start with {str(other)!r}")
        start = other if isinstance(other, AbstractPath) else type(self).from_str(other)
        return self[len(start) :]

    @overload
    def __getitem__(self, index: int) -> Part: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Part | Self:
        return type(self)(*self.parts[index]) if isinstance(index, slice) else self.parts[index]

    def __len__(self) -> int:
        return len(self.parts)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, AbstractPath) and _equal(self.parts, other.parts)

    def __hash__(self) -> int:
        return hash((type(self).__name__, paths.format(self.parts)))

    def __repr__(self) -> str:
        return paths.format(self.parts)

    def __as_konfig__(self) -> str:
        return str(self)


class Path(AbstractPath):
    """A path without wildcards: it leads to one place."""

    _ALLOWS_WILDCARDS = False

    def get_from(self, context: Context, *, default: Any = ...) -> Any:
        """Value at this path in `context`, or `default`.

        Raises:
          PathLookupError: A KeyError, when nothing lies there and no default is given.
        """
        return _lookup.lookup(context, self.parts, default=default)

    def set_in(self, context: Context, value: Any) -> list[str]:
        """Puts `value` at this path in `context` and returns the paths that changed."""
        return writing.set_in(context, self.parts, value)


def get_by_path(obj: Context, path: str | Path | tuple[Part, ...] | None, default: Any = ...) -> Any:
    """Value at `path` in `obj`: at each step the item, or else the attribute, of that name.

    Args:
      obj: Any tree of dicts, lists, dataclasses, arrays and objects.
      path: A text such as `preds.aux[0].pos`, its parts, or a Path. None (an optional key that is not set) gives
        None, or the default.
      default: What to return when nothing lies there.

    Raises:
      PathLookupError: A KeyError, when nothing lies there and no default is given.
      TypeError: When `path` is none of these.
    """
    if path is None:
        return None if default is ... else default
    return as_path(path).get_from(obj, default=default)


def as_path(path: str | Path | tuple[Part, ...]) -> Path:
    """Returns `path` as a Path, whichever way it was given."""
    if isinstance(path, str):
        return Path.from_str(path)
    if isinstance(path, Path):
        return path
    if isinstance(path, tuple):
        return Path(*path)
    if hasattr(path, "__as_konfig__"):
        return Path.from_str(str(path))
    raise TypeError(f"a path is a text, a Path or a tuple of parts, not {path!r} ({type(path).__name__})")


def _from_jax_key(entry: Any) -> Part:
    """Returns the part that a JAX key entry stands for: GetAttrKey has a name, Dict and FlattenedIndexKey a key."""
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    raise TypeError(f"unknown JAX key entry {entry!r} ({type(entry).__name__})")


def _equal(left: tuple[Part, ...], right: tuple[Part, ...]) -> bool:
    # 1, 1.0 and True are equal to Python and different keys to a reader.
    return left == right and [type(part) for part in left] == [type(part) for part in right]
