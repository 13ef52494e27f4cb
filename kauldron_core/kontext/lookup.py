"""Reading by path, and the message when there is nothing to read."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from kauldron_core import paths
from kauldron_core.errors import closest, listing
from kauldron_core.kontext.containers import MISSING, available, children, get_child
from kauldron_core.paths import Part

_MAX_NODES = 2_000
_MAX_DEPTH = 12


class PathLookupError(KeyError):
    """Nothing lies at a path. The message names the path, the part that failed, what was there and the closest path."""

    def __str__(self) -> str:
        # A KeyError prints the repr of its argument, which is unreadable for a sentence.
        return str(self.args[0])


def lookup(root: Any, parts: tuple[Part, ...], *, default: Any = ...) -> Any:
    """Value at `parts` below `root`, or `default`.

    Raises:
      PathLookupError: When nothing lies there and no default is given.
    """
    value = root
    for index, part in enumerate(parts):
        child = get_child(value, part)
        if child is MISSING:
            if default is not ...:
                return default
            raise PathLookupError(miss(root, parts, index, value))
        value = child
    return value


def miss(root: Any, parts: tuple[Part, ...], index: int, parent: Any) -> str:
    """Returns the message for a path whose part `index` is not in `parent`."""
    path, failed = paths.format(parts), _text(parts[index])
    where = f"{paths.format(parts[:index])!r}" if index else "the root"
    shape = getattr(parent, "shape", None)
    kind = type(parent).__name__ + (f" of shape {shape}" if isinstance(shape, tuple) else "")
    match = closest_path(root, parts, index, parent)
    hint = f" Did you mean {match!r}?" if match else ""
    names = listing(_text(name) for name in available(parent))
    return f"{path}: {where} ({kind}) has no {failed!r}.{hint} Available: {names}."


def closest_path(root: Any, parts: tuple[Part, ...], index: int, parent: Any) -> str | None:
    """Returns the path that was most likely meant by `parts`, whose part `index` is not in `parent`, or None."""
    if match := _closest_part(parts[index], available(parent)):
        path = (*parts[:index], match, *parts[index + 1 :])
        # The rest may be mistyped too: then as far as the path leads.
        return paths.format(path if lookup(root, path, default=MISSING) is not MISSING else path[: index + 1])
    # A layer more or less on the way to the same name is the usual slip.
    candidates = [path for path, _ in walk(root) if path and _closest_part(parts[-1], [path[-1]])]
    texts = [paths.format(path) for path in candidates if path != parts[: len(path)]]
    matches = difflib.get_close_matches(paths.format(parts), texts, n=1, cutoff=0.0)
    return matches[0] if matches else None


def _closest_part(part: Part, candidates: list[Part]) -> str | None:
    if not isinstance(part, str):
        return None
    return closest(part, [candidate for candidate in candidates if isinstance(candidate, str)])


def walk(root: Any) -> Iterator[tuple[tuple[Part, ...], Any]]:
    """Yields (parts, value) of `root` and what lies below it, breadth first, up to a bounded number of nodes."""
    level: list[tuple[tuple[Part, ...], Any]] = [((), root)]
    seen = 0
    for _ in range(_MAX_DEPTH):
        below = []
        for parts, value in level:
            yield parts, value
            seen += 1
            if seen >= _MAX_NODES:
                return
            below.extend(((*parts, part), child) for part, child in children(value))
        level = below


def _text(part: Part) -> str:
    return part if isinstance(part, str) else paths.format((part,))
