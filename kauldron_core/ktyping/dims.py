"""The mini-language of shapes: `"*b h w c"` as a tuple of dimensions.

| written | matches | binds |
|---|---|---|
| `b` | one axis | `b` to its size |
| `3` | one axis of size 3 | |
| `_`, `_x` | one axis of any size | |
| `*b` | any number of axes | `b` to their sizes |
| `+b` | one or more axes | `b` to their sizes |
| `t?` | one axis or none | `t` to its size, if it is there |
| `...` | any number of axes | |
| `#c` | one axis of size 1 or `c` | `c` unless the size is 1 |
| `*#b` | axes that broadcast against `b` | `b` to the larger ones |
| `3\\|a` | one axis that fits one of them | as the one that fits |
| `h*w`, `(c+1)//2` | one axis of that size | |
| `{self.width}` | one axis of that size, by the function's arguments | |
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re

from kauldron_core.ktyping import expressions

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_ANONYMOUS = re.compile(r"_[A-Za-z0-9_]*")
_TOKEN = re.compile(r"\{[^}]*\}|\S+")


@dataclasses.dataclass(frozen=True)
class Dim:
    """One axis, or a run of axes when it is variadic. The text is what the user wrote."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Fixed(Dim):
    """One axis of a known size."""

    size: int


@dataclasses.dataclass(frozen=True)
class Named(Dim):
    """One axis whose size has a name; `broadcast` lets a size of 1 stand for any."""

    name: str
    broadcast: bool = False


@dataclasses.dataclass(frozen=True)
class Anything(Dim):
    """One axis of any size."""


@dataclasses.dataclass(frozen=True)
class Computed(Dim):
    """One axis whose size follows from others, or from the function's arguments (`of_arguments`)."""

    tree: ast.expr
    of_arguments: bool = False


@dataclasses.dataclass(frozen=True)
class Choice(Dim):
    """One axis that fits any of several dimensions."""

    options: tuple[Dim, ...]


@dataclasses.dataclass(frozen=True)
class Variadic(Dim):
    """A run of at least `least` axes; an empty name binds nothing."""

    name: str
    least: int = 0
    broadcast: bool = False


@dataclasses.dataclass(frozen=True)
class Maybe(Named):
    """One axis or none; the name is bound when the axis is there."""


def least_axes(dims: tuple[Dim, ...]) -> int:
    """Returns how many axes an array must have at least."""
    return sum(dim.least if isinstance(dim, Variadic) else not isinstance(dim, Maybe) for dim in dims)


def is_of_fixed_rank(dims: tuple[Dim, ...]) -> bool:
    """Returns whether all arrays that fit have the same number of axes."""
    return not any(isinstance(dim, Variadic | Maybe) for dim in dims)


@functools.lru_cache(maxsize=4096)
def parse(spec: str) -> tuple[Dim, ...]:
    """Returns the dimensions of `spec`.

    Raises:
      ValueError: If a dimension is none of the forms of this module's table.
    """
    return tuple(_parse_dim(token) for token in _join_spaced(_TOKEN.findall(spec)))


def _join_spaced(tokens: list[str]) -> list[str]:
    """Joins what belongs together in `(c + 1)//2`: spaces inside brackets don't separate axes."""
    joined: list[str] = []
    for token in tokens:
        if joined and joined[-1].count("(") > joined[-1].count(")"):
            joined[-1] += token
        else:
            joined.append(token)
    return joined


def _parse_dim(text: str) -> Dim:
    if text == "...":
        return Variadic(text, "")
    if text.startswith("{") and text.endswith("}"):
        return Computed(text, expressions.parse(text[1:-1]), of_arguments=True)
    if "|" in text:
        return Choice(text, tuple(_single(option) for option in text.split("|")))
    if variadic := re.fullmatch(r"(\*#|#\*|\*|\+)([A-Za-z_]\w*)", text):
        mark, name = variadic.groups()
        return Variadic(text, _bound_name(name), least=int(mark == "+"), broadcast="#" in mark)
    if maybe := re.fullmatch(r"([A-Za-z_]\w*)\?", text):
        return Maybe(text, _bound_name(maybe[1]))
    return _single(text)


def _single(text: str) -> Dim:
    if text.isdecimal():
        return Fixed(text, int(text))
    if _NAME.fullmatch(text):
        return Named(text, text)
    if _ANONYMOUS.fullmatch(text):
        return Anything(text)
    if text.startswith("#") and _NAME.fullmatch(text[1:]):
        return Named(text, text[1:], broadcast=True)
    return Computed(text, expressions.parse(text))


def _bound_name(name: str) -> str:
    return "" if name.startswith("_") else name
