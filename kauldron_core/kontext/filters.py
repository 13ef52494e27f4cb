"""Keeping of a tree only what a path leads to."""

from __future__ import annotations

from typing import Any

from kauldron_core import paths
from kauldron_core.kontext import search
from kauldron_core.kontext.containers import children, is_container, is_sequence
from kauldron_core.kontext.glob import as_glob
from kauldron_core.kontext.lookup import PathLookupError
from kauldron_core.kontext.path import Context, PathInput
from kauldron_core.paths import Part


def filter_by_path(obj: Context, path: PathInput) -> Context:
    """Returns the parts of `obj` that `path` leads to, in the containers they are in; the rest is dropped.

        filter_by_path({'a': {'bias': 1, 'kernel': 2}, 'b': {'kernel': 3}}, '**.bias') == {'a': {'bias': 1}}

    Lists become shorter, a dataclass or named tuple of which only a part is kept becomes a dict. The empty path
    keeps everything.

    Raises:
      PathLookupError: A KeyError, when a part that does not follow a `**` is missing.
    """
    glob = as_glob(path)
    kept: dict[Part, Any] = {}
    for found, _ in search.find(obj, glob.parts):
        _keep(kept, _normal(obj, found))
    if not kept and not is_container(obj):
        raise PathLookupError(f"{paths.format(glob.parts)}: nothing in this {type(obj).__name__} matches")
    return _build(obj, kept)


_WHOLE: Any = object()


def _keep(kept: dict[Part, Any], path: tuple[Part, ...]) -> None:
    """Marks the place at `path` as kept with all that is below it."""
    for part in path:
        if _WHOLE in kept:
            return
        kept = kept.setdefault(part, {})
    kept.clear()
    kept[_WHOLE] = True


def _build(node: Any, kept: dict[Part, Any]) -> Any:
    if _WHOLE in kept:
        return node
    items = {step: _build(child, kept[step]) for step, child in children(node) if step in kept}
    if is_sequence(node):
        return type(node)(items.values()) if type(node) in (list, tuple) else list(items.values())
    # What was reached as an attribute, or is a part of an array, is no child; it is kept under its step.
    return items


def _normal(root: Any, path: tuple[Part, ...]) -> tuple[Part, ...]:
    """Returns `path` with negative indices counted from the start, so that each place has one name."""
    normal: list[Part] = []
    node: Any = root
    for part in path:
        is_index = is_sequence(node) and isinstance(part, int)
        normal.append(part % len(node) if is_index else part)
        node = node[part] if is_index else dict(children(node)).get(part)
    return tuple(normal)
