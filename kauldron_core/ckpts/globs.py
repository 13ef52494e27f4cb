"""Globs over the dotted paths of arrays: `*` is one part, `**` any number of parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kauldron_core import paths


def matches_any(patterns: Iterable[str], *places: str) -> bool:
    """Returns whether one of `patterns` matches one of `places`."""
    return any(matches(pattern, place) for pattern in patterns for place in places)


def matches(pattern: str, place: str) -> bool:
    """Returns whether the whole of `place` (`params.encoder.0.bias`) matches `pattern` (`**.bias`)."""
    return _matches(paths.parse(pattern, glob=True), place.split("."))


def _matches(pattern: Sequence[paths.Part], parts: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    head, rest = pattern[0], pattern[1:]
    if head is paths.DOUBLE_STAR:
        return any(_matches(rest, parts[count:]) for count in range(len(parts) + 1))
    return bool(parts) and (head is paths.STAR or str(head) == parts[0]) and _matches(rest, parts[1:])
