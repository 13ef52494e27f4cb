"""`GlobPath`: a path with the wildcards `*` (one step) and `**` (any number of steps)."""

from __future__ import annotations

from typing import Any

from kauldron_core import paths
from kauldron_core.kontext import search, writing
from kauldron_core.kontext.path import AbstractPath, Context, Path, PathInput
from kauldron_core.paths import Wildcard


class GlobPath(AbstractPath):
    """A path that may hold wildcards: it leads to any number of places. It never equals a Path."""

    _ALLOWS_WILDCARDS = True

    @property
    def first_non_glob_parent(self) -> Path:
        """The part of the path before its first wildcard."""
        wildcards = [index for index, part in enumerate(self.parts) if isinstance(part, Wildcard)]
        return Path(*self.parts[: wildcards[0] if wildcards else len(self.parts)])

    def get_from(self, context: Context) -> dict[str, Any]:
        """Values in `context` that this path leads to, by their paths.

        Raises:
          PathLookupError: A KeyError, when a part that does not follow a `**` is missing.
        """
        return {paths.format(path): value for path, value in search.find(context, self.parts)}

    def set_in(self, context: Context, value: Any) -> list[str]:
        """Puts `value` at every place that this path leads to and returns the paths that changed."""
        return writing.set_in(context, self.parts, value)


def set_by_path(obj: Context, path: PathInput, value: Any) -> list[str]:
    """Puts `value` at `path`, which may hold wildcards, in place, and returns the paths that changed.

    Only the last key may be new. `**` passes over branches that do not match; after `*` every child must be a
    container.

    Raises:
      ValueError: When the path is empty, ends in a wildcard, holds a slice, or leads into a leaf.
      KeyError: When a part before the last leads nowhere.
      TypeError: When a place lies in something that cannot be changed, such as a tuple.
    """
    return as_glob(path).set_in(obj, value)


def as_glob(path: PathInput) -> GlobPath:
    """Returns `path` as a GlobPath, whichever way it was given."""
    if isinstance(path, str):
        return GlobPath.from_str(path)
    if isinstance(path, AbstractPath):
        return GlobPath(*path.parts)
    if isinstance(path, tuple):
        return GlobPath(*path)
    raise TypeError(f"a path is a text, a Path or a tuple of parts, not {path!r} ({type(path).__name__})")
