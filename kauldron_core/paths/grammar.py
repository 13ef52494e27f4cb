"""The grammar of paths: text in, tuple of parts out.

A path is a chain of names (`model.layers`), whole numbers (`layers.0`, `layers[-1]`) and bracketed Python
literals (`evals['a.b']`, `x[..., :1]`). Spaces around names and brackets mean nothing. The empty text is the root.
"""

from __future__ import annotations

import ast
import enum
import functools
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from kauldron_core.errors import ConfigError

_SIMPLE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
NAME = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"\d+")
_MAX_CHARS = 2_000


class PathSyntaxError(ConfigError):
    """A text that is not a path."""


class Wildcard(enum.Enum):
    """The two wildcards of a glob path."""

    STAR = "*"
    DOUBLE_STAR = "**"

    def __repr__(self) -> str:
        return self.value


STAR = Wildcard.STAR
DOUBLE_STAR = Wildcard.DOUBLE_STAR

Part: TypeAlias = Any
"""One step of a path: a key (text, number, bytes, None), a slice, Ellipsis, a tuple of those, or a wildcard."""


def parse(text: str, *, glob: bool = False) -> tuple[Part, ...]:
    """Returns the parts of the path written in `text`.

    Args:
      text: A path such as `model.layers[0].features`.
      glob: Whether the wildcards `*` (one step) and `**` (any number of steps) are allowed.

    Raises:
      PathSyntaxError: When `text` is not a path.
    """
    if len(text) > _MAX_CHARS:
        raise PathSyntaxError(f"a path of {len(text)} characters is too long (at most {_MAX_CHARS})")
    if _SIMPLE.match(text):
        return tuple(text.split("."))
    return _parse(text, glob)


@functools.lru_cache(maxsize=4096)
def _parse(text: str, glob: bool) -> tuple[Part, ...]:
    return tuple(_parts(text, glob))


def _parts(text: str, glob: bool) -> Iterator[Part]:
    at = _skip_spaces(text, 0)
    after_dot = True  # A path may start with a name, as if a dot had been read.
    is_start = True
    while at < len(text):
        if text[at] == "[":
            if after_dot and not is_start:
                raise _error(text, at, "a name is missing after the dot")
            end = _closing_bracket(text, at)
            yield _bracket(text, at, end, glob)
            at, after_dot = end + 1, False
        elif text[at] == "." and not after_dot:
            at, after_dot, is_start = _skip_spaces(text, at + 1), True, False
            continue
        elif after_dot:
            part, at = _bare(text, at, glob)
            yield part
            after_dot = False
        else:
            raise _error(text, at, f"{text[at]!r} is not expected here")
        is_start = False
        at = _skip_spaces(text, at)
    if after_dot and not is_start:
        raise _error(text, len(text), "a name is missing after the dot")


def _bare(text: str, at: int, glob: bool) -> tuple[Part, int]:
    """Reads a name, a number or a wildcard that starts at `at`."""
    if glob and text[at] == "*":
        wildcard = DOUBLE_STAR if text.startswith("**", at) else STAR
        return wildcard, at + len(wildcard.value)
    if match := NAME.match(text, at):
        return match.group(), match.end()
    if match := _NUMBER.match(text, at):
        return int(match.group()), match.end()
    if text[at] == "*":
        raise _error(text, at, "a wildcard is not allowed in this path")
    if text[at] == ".":
        raise _error(text, at, "a name is missing before the dot")
    raise _error(text, at, f"{text[at]!r} cannot start a name (other keys are written ['like this'])")


def _closing_bracket(text: str, start: int) -> int:
    """Returns where the bracket opened at `start` closes, quotes and inner brackets respected."""
    depth, quote, at = 0, "", start
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "[(":
            depth += 1
        elif char in "])":
            depth -= 1
            if not depth:
                return at
        at += 1
    raise _error(text, start, "the bracket is never closed" if not quote else "the quote is never closed")


def _bracket(text: str, start: int, end: int, glob: bool) -> Part:
    inside = text[start + 1 : end].strip()
    if glob and inside in ("*", "**"):
        return Wildcard(inside)
    try:
        tree = ast.parse(f"_[{inside}]", mode="eval").body
        if not isinstance(tree, ast.Subscript):
            raise ValueError(inside)
        return _index(tree.slice)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        shown = inside if len(inside) <= 40 else inside[:37] + "..."
        message = f"[{shown}] does not hold a number, a quoted key or a slice"
        hint = f"; write ['{inside}']" if NAME.fullmatch(inside) else ""
        raise _error(text, start, message + hint) from None


def _index(node: ast.expr) -> Part:
    """Returns the value of what stands between brackets."""
    if isinstance(node, ast.Slice):
        bounds = (node.lower, node.upper, node.step)
        return slice(*(None if bound is None else ast.literal_eval(bound) for bound in bounds))
    if isinstance(node, ast.Tuple):
        return tuple(_index(element) for element in node.elts)
    value = ast.literal_eval(node)
    hash(value)  # A key is hashable: lists and dicts are refused here.
    return value


def _skip_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _error(text: str, at: int, what: str) -> PathSyntaxError:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return PathSyntaxError(f"path {shown!r}: {what} (character {at + 1})")
