"""Paths written as code, `batch.image`, which editors complete and typos cannot enter."""

from __future__ import annotations

import typing
from typing import Any, TypeVar

from kauldron_core import paths
from kauldron_core.errors import unknown_name
from kauldron_core.paths import Part

_T = TypeVar("_T")
_SCALARS = (bool, bytes, complex, float, int, str)


def path_builder_from(prefix: str, cls: type[_T]) -> _T:
    """Returns an object whose attributes and items are paths below `prefix`.

        batch = path_builder_from('batch', Batch)
        L2(preds=preds.image, targets=batch.image)    # 'batch.image'

    A builder prints as its path and turns into that text in a config. What it has is what the annotations of `cls`
    promise; below `Any` and unannotated types everything goes.

    Args:
      prefix: The path that the whole object lies at.
      cls: The type of that object.
    """
    return typing.cast("_T", _Builder(paths.parse(prefix), cls))


class _Builder:
    __slots__ = ("_parts", "_type")

    def __init__(self, parts: tuple[Part, ...], annotation: Any):
        object.__setattr__(self, "_parts", parts)
        object.__setattr__(self, "_type", _plain(annotation))

    def __getattr__(self, name: str) -> _Builder:
        if name.startswith("__"):
            raise AttributeError(name)
        hints = _hints(self._type)
        if hints is not None and name not in hints:
            raise AttributeError(unknown_name("attribute", name, hints, at=str(self)))
        return _Builder((*self._parts, name), Any if hints is None else hints[name])

    def __getitem__(self, key: Part) -> _Builder:
        if self._type in _SCALARS:
            raise TypeError(f"{self}: a {self._type.__name__} has no items")
        return _Builder((*self._parts, key), _item_type(self._type, key))

    def __dir__(self) -> list[str]:
        return sorted(_hints(self._type) or ())

    def __str__(self) -> str:
        return paths.format(self._parts)

    __repr__ = __str__
    __as_konfig__ = __str__


def _plain(annotation: Any) -> Any:
    """Returns `annotation` without Annotated and Optional."""
    if hasattr(annotation, "__metadata__"):
        return _plain(typing.get_args(annotation)[0])
    alternatives = [choice for choice in typing.get_args(annotation) if choice is not type(None)]
    if type(None) in typing.get_args(annotation) and len(alternatives) == 1:
        return _plain(alternatives[0])
    return annotation


def _hints(cls: Any) -> dict[str, Any] | None:
    """Returns the attributes that `cls` promises with their types, or None when it promises nothing."""
    if cls in _SCALARS:
        return {}
    if not isinstance(cls, type):
        return None
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, AttributeError, TypeError):
        # Some annotation exists for type checkers only: the names are still known.
        hints = {name: Any for base in cls.__mro__ for name in getattr(base, "__annotations__", {})}
    properties = {name: Any for name in dir(cls) if isinstance(getattr(cls, name), property)}
    return {**properties, **hints} if hints else None


def _item_type(annotation: Any, key: Part) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if not arguments or not isinstance(origin, type):
        return Any
    if origin is tuple and arguments[-1] is not Ellipsis:
        return arguments[key] if isinstance(key, int) and -len(arguments) <= key < len(arguments) else Any
    return arguments[0] if origin is tuple else arguments[-1]
