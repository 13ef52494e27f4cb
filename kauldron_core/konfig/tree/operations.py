"""The operations that a reference can hold, by name.

References come from files too, so the operations are a fixed list, and their results are bounded: nobody needs a
config value of a million characters, but a hostile file could ask for one (`'a' * 10**12`).
"""

from __future__ import annotations

import operator as untyped_operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from kauldron_core.errors import ConfigError

operator: Any = untyped_operator  # Its functions take any operands; their stubs name protocols instead.

MAX_LENGTH: Final = 1_000_000
"""Longest text, tuple or list that an operation may make."""
MAX_BITS: Final = 10_000
"""Longest whole number that an operation may make."""


def _bounded_add(left: Any, right: Any) -> Any:
    if _length(left) + _length(right) > MAX_LENGTH:
        raise ConfigError(f"the sum would be longer than {MAX_LENGTH} entries")
    return left + right


def _bounded_mul(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _require_bits(left.bit_length() + right.bit_length())
    elif max(_length(left), _length(right)) * max(_count(left), _count(right), 1) > MAX_LENGTH:
        raise ConfigError(f"the product would be longer than {MAX_LENGTH} entries")
    return left * right


def _bounded_pow(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _require_bits(left.bit_length() * max(right, 1))
    return left**right


def _bounded_mod(left: Any, right: Any) -> Any:
    # On text, % is a format whose width a file could choose; an f-string in a ref_fn does the same for code.
    if isinstance(left, (str, bytes)):
        raise ConfigError("% on text is not available in a reference; use + or a konfig.ref_fn")
    return left % right


def _require_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise ConfigError(f"the number would be longer than {MAX_BITS} bits")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, tuple, list)) else 0  # pyright: ignore[reportUnknownArgumentType]


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


OPERATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "add": _bounded_add,
    "sub": operator.sub,
    "mul": _bounded_mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": _bounded_mod,
    "pow": _bounded_pow,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "abs": abs,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "int": int,
    "float": float,
    "str": str,
}
"""Operations that give None when an operand has no value yet."""

EQUALITIES: Final[Mapping[str, Callable[..., Any]]] = {"eq": operator.eq, "ne": operator.ne}
"""Operations for which None is an operand like any other."""

STRUCTURAL: Final = frozenset({"call", "get"})
"""Operations that reach into a value; the evaluator does them itself, under the rules of trust."""

ALL: Final = frozenset(OPERATIONS) | frozenset(EQUALITIES) | STRUCTURAL

_TEXT_METHODS: Final = (
    "capitalize casefold count endswith find isdigit join lower lstrip partition removeprefix removesuffix "
    "replace rpartition rsplit rstrip split splitlines startswith strip swapcase title upper"
)
SAFE_METHODS: Final[Mapping[type, frozenset[str]]] = {
    str: frozenset(_TEXT_METHODS.split()),
    bytes: frozenset({"hex"}),
    int: frozenset({"bit_count", "bit_length"}),
    float: frozenset({"is_integer"}),
    tuple: frozenset({"count", "index"}),
    list: frozenset({"count", "index"}),
}
"""Methods of plain values that a reference read from a file may call: no side effects, results of bounded size."""


def check_method(function: Any, args: tuple[Any, ...]) -> None:
    """Refuses a call of a safe method whose result could be longer than `MAX_LENGTH`."""
    longest = max((_length(arg) for arg in args), default=0)
    if function.__name__ in ("join", "replace") and (_length(function.__self__) + 1) * (longest + 1) > MAX_LENGTH:
        raise ConfigError(f"the text would be longer than {MAX_LENGTH} entries")


_UNARY: Final = frozenset({"neg", "pos", "invert", "abs", "int", "float", "str"})


def check_operands(op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuses an operation with the wrong number of operands (a file can say anything)."""
    expected = 1 if op in _UNARY else 2
    is_right = len(args) >= 1 if op == "call" else len(args) == expected and not kwargs
    if not is_right:
        raise ConfigError(f"the operation {op!r} takes {expected} operands, not {len(args)}")
