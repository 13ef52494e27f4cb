"""Prints paths: the inverse of the grammar."""

from __future__ import annotations

from collections.abc import Iterable

from kauldron_core.paths.grammar import NAME, Part, Wildcard


def format(parts: Iterable[Part]) -> str:
    """Returns the text of a path, such that parsing it gives the same parts back."""
    return join("", *parts)


def join(prefix: str, *parts: Part) -> str:
    """Returns the text of the path `prefix` followed by `parts`."""
    text = prefix
    for part in parts:
        step = _step(part)
        text += step if text or step[0] == "[" else step[1:]
    return text


def _step(part: Part) -> str:
    if isinstance(part, str) and NAME.fullmatch(part):
        return "." + part
    if isinstance(part, Wildcard):
        return "." + part.value
    if isinstance(part, tuple) and part:
        return f"[{','.join(map(_key, part))}{',' if len(part) == 1 else ''}]"
    return f"[{_key(part)}]"


def _key(part: Part) -> str:
    if isinstance(part, slice):
        bounds = [_bound(part.start), _bound(part.stop)]
        return ":".join(bounds + ([_bound(part.step)] if part.step is not None else []))
    return "..." if part is Ellipsis else repr(part)


def _bound(value: object) -> str:
    return "" if value is None else repr(value)
