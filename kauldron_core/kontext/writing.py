"""Setting by path, with and without wildcards."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

from kauldron_core import paths
from kauldron_core.kontext.containers import MISSING, get_child, is_container, is_mapping
from kauldron_core.kontext.lookup import PathLookupError, miss
from kauldron_core.kontext.search import find
from kauldron_core.paths import DOUBLE_STAR, Part, Wildcard


def set_in(root: Any, parts: tuple[Part, ...], value: Any) -> list[str]:
    """Puts `value` at every place that `parts` leads to, in place.

    Only the last part may be new. `**` passes over branches that do not match; after `*` every place must be a
    container. All places are found and checked before the first one is written.

    Returns:
      The paths that were written, in the order of the tree.

    Raises:
      ValueError: When `parts` is empty, ends in a wildcard, holds a slice, or leads into a leaf.
      KeyError: When a part before the last leads nowhere, or an index is out of range.
      TypeError: When a place is in something that cannot be changed (a tuple, a dataclass).
    """
    _check(parts)
    target = parts[-1]
    is_optional = len(parts) > 1 and parts[-2] is DOUBLE_STAR
    parents = [
        (parent, path) for path, parent in find(root, parts[:-1]) if _accepts(root, parent, path, target, is_optional)
    ]
    places = {(*path, target) for _, path in parents}
    # `**.b` also finds b inside the old b: the outer one replaces both.
    parents = [(parent, path) for parent, path in parents if not _is_inside(path, places)]
    for parent, _ in parents:
        parent[target] = value
    return [paths.format((*path, target)) for _, path in parents]


def _check(parts: tuple[Part, ...]) -> None:
    if not parts:
        raise ValueError("the empty path is the root, which cannot be replaced in place")
    if isinstance(parts[-1], Wildcard):
        raise ValueError(f"{paths.format(parts)}: a wildcard cannot be the last part of a path that is set")
    if any(isinstance(part, slice | tuple) or part is Ellipsis for part in parts):
        raise ValueError(f"{paths.format(parts)}: slices cannot be set")


def _accepts(root: Any, parent: Any, path: tuple[Part, ...], target: Part, is_optional: bool) -> bool:
    """Returns whether `target` is to be set in `parent`; raises when it would have to be and cannot."""
    full = (*path, target)
    if not is_container(parent):
        if is_optional:
            return False
        kind = type(parent).__name__
        raise ValueError(f"{paths.format(full)}: {paths.format(path)!r} is a leaf ({kind}), nothing can be set in it")
    if get_child(parent, target) is MISSING and (is_optional or not is_mapping(parent)):
        if is_optional:
            return False
        raise PathLookupError(miss(root, full, len(path), parent))
    if not isinstance(parent, MutableSequence) and not (is_mapping(parent) and hasattr(parent, "__setitem__")):
        raise TypeError(f"{paths.format(full)}: a {type(parent).__name__} cannot be changed in place")
    return True


def _is_inside(path: tuple[Part, ...], places: set[tuple[Part, ...]]) -> bool:
    return any(path[:length] in places for length in range(1, len(path) + 1))
