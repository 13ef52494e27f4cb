"""Finding every place that a path with wildcards leads to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kauldron_core.kontext.containers import MISSING, children, get_child, is_container
from kauldron_core.kontext.lookup import PathLookupError, miss
from kauldron_core.paths import DOUBLE_STAR, STAR, Part

Found = tuple[tuple[Part, ...], Any]


def find(root: Any, parts: tuple[Part, ...]) -> Iterator[Found]:
    """Yields (path, value) of every place in `root` that `parts` leads to, each once, in the order of the tree.

    `*` is one step and needs a container; `**` is any number of steps, none included. The part right after a `**`
    may be missing, which passes over that branch; every other part must be there.

    Raises:
      PathLookupError: When a part that must be there is missing.
    """
    seen: list[tuple[Part, ...]] = []
    # Two `**` reach the same place on several ways.
    is_ambiguous = parts.count(DOUBLE_STAR) > 1
    for path, value in _find(root, parts, root, (), is_optional=False):
        if is_ambiguous:
            if path in seen:
                continue
            seen.append(path)
        yield path, value


def _find(root: Any, rest: tuple[Part, ...], node: Any, at: tuple[Part, ...], *, is_optional: bool) -> Iterator[Found]:
    if not rest:
        yield at, node
        return
    part, after = rest[0], rest[1:]
    if part is DOUBLE_STAR:
        yield from _find(root, after, node, at, is_optional=True)
        for step, child in children(node):
            yield from _find(root, rest, child, (*at, step), is_optional=True)
    elif part is STAR and is_container(node):
        for step, child in children(node):
            yield from _find(root, after, child, (*at, step), is_optional=False)
    elif part is not STAR and (child := get_child(node, part)) is not MISSING:
        yield from _find(root, after, child, (*at, part), is_optional=False)
    elif not is_optional:
        raise PathLookupError(miss(root, (*at, *rest), len(at), node))
