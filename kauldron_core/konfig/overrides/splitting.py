"""Splits override text at the commas and signs that stand outside brackets and quotes."""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

_OPEN = {"[": "]", "(": ")", "{": "}"}
_CLOSE = frozenset(_OPEN.values())
# A quote opens a string only where Python would let it: not inside a word, so that `it's` stays text.
_MAY_OPEN_STRING = re.compile(r"(^|[^\w'\"])([rbu]|rb|br)?\Z", re.IGNORECASE)


class _Char(NamedTuple):
    at: int
    depth: int
    """Brackets still open after this character."""
    is_quoted: bool


def split_outside(text: str, separator: str) -> list[str]:
    """Returns the pieces of `text` between separators that stand outside brackets and quotes, spaces stripped."""
    cuts = [char.at for char in _outline(text) if text[char.at] == separator and not (char.depth or char.is_quoted)]
    bounds = [-1, *cuts, len(text)]
    return [text[start + 1 : end].strip() for start, end in itertools.pairwise(bounds)]


def split_items(text: str) -> list[str]:
    """Returns the comma-separated items of `text`; one trailing comma is allowed, as in Python."""
    items = split_outside(text, ",")
    return items if items[-1] else items[:-1]


def partition_outside(text: str, separator: str) -> tuple[str, str, str]:
    """Returns what `str.partition` does, at the first separator outside brackets and quotes."""
    for char in _outline(text):
        if text[char.at] == separator and not (char.depth or char.is_quoted):
            return text[: char.at], separator, text[char.at + 1 :]
    return text, "", ""


def partition_key(text: str) -> tuple[str, str, str]:
    """Returns what stands before and after the equals sign of `KEY=VALUE`; quoted keys may hold such signs too."""
    key, equals, value = partition_outside(text, "=")
    # In a key whose bracket is never closed every sign is inside; it is cut at the first all the same.
    return (key, equals, value) if equals else text.partition("=")


def is_unfinished(text: str) -> bool:
    """Returns whether `text` ends inside a bracket or a quote."""
    last = collections.deque(_outline(text), maxlen=1)
    return any(char.depth > 0 or char.is_quoted for char in last)


def depth_of(text: str) -> int:
    """Returns how deep the brackets of `text` nest."""
    return max((char.depth for char in _outline(text)), default=0)


def inside(text: str, opening: str) -> str | None:
    """Returns what the one pair of brackets around the whole of `text` holds, or None when there is no such pair."""
    text = text.strip()
    if len(text) < 2 or text[0] != opening or text[-1] != _OPEN[opening]:
        return None
    closed_at = next((char.at for char in _outline(text) if char.at and not char.depth and not char.is_quoted), -1)
    return text[1:-1].strip() if closed_at == len(text) - 1 else None


def _outline(text: str) -> Iterator[_Char]:
    """Yields every character with the brackets and quotes it stands in; a closing quote counts as outside."""
    depth, quote, at = 0, "", 0
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                yield _Char(at, depth, True)
                at += 1
                if at == len(text):
                    return
            elif char == quote:
                quote = ""
        elif char in "'\"" and _MAY_OPEN_STRING.search(text[max(0, at - 3) : at]):
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE and depth:
            depth -= 1
        yield _Char(at, depth, bool(quote))
        at += 1
