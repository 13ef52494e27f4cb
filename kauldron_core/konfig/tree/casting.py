"""Type safety: a field keeps its type when it is overwritten."""

from __future__ import annotations

import numbers
import pathlib
from typing import Any, Final

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import is_a, is_node, is_sequence, kind_of
from kauldron_core.konfig.tree.references import LAZY, Placeholder

_SEQUENCES: Final = frozenset({list, tuple})


class ConfigTypeError(ConfigError, TypeError):
    """A value of a type that the field does not take."""


def cast(value: Any, old: Any, at: str) -> Any:
    """Returns `value` as the type of `old`, where that loses nothing.

    Raises:
      ConfigTypeError: When the types do not fit.
    """
    if type(value) is type(old) or value is None or old is None or type(value) in LAZY:
        return value
    if type(old) is Placeholder:
        return _cast_to(value, old.type, at)
    if type(old) in LAZY:
        return value
    if is_node(old) or is_node(value):
        return _cast_node(value, old, at)
    return _cast_to(value, kind_of(old), at)


def _cast_to(value: Any, kind: Any, at: str) -> Any:
    if kind is object or (isinstance(value, kind) and not _is_bool_for_number(value, kind)):
        return value
    if _is_call(value):
        return value  # What a call returns is not known before it is made.
    if kind is float and is_a(value, numbers.Real) and not is_a(value, bool):
        return float(value) if is_a(value, int) else value
    if kind in _SEQUENCES and is_sequence(value):
        return kind(value)
    if issubclass(kind, pathlib.PurePath) and isinstance(value, (str, pathlib.PurePath)):
        return kind(value)
    if kind is str and isinstance(value, pathlib.PurePath):
        return str(value)
    raise ConfigTypeError(f"{at}: {_shown(value)} does not fit, the field holds {_kind(kind)}")


def _is_bool_for_number(value: Any, kind: type) -> bool:
    return isinstance(value, bool) and kind is not bool and issubclass(kind, (int, float))


def _cast_node(value: Any, old: Any, at: str) -> Any:
    """A call may replace a value and the other way round (a schedule for a number); a plain dict may not."""
    if _is_call(value) or _is_call(old):
        return value
    raise ConfigTypeError(f"{at}: {_shown(value)} does not fit, the field holds {_shown(old)}")


def _is_call(value: Any) -> bool:
    return is_node(value) and (QUALNAME in value or CONST in value)


def _shown(value: Any) -> str:
    if is_node(value):
        return "a call" if _is_call(value) else "a dict"
    text = repr(value)
    return f"{_kind(kind_of(value))} ({text if len(text) <= 60 else text[:57] + '...'})"


def _kind(kind: Any) -> str:
    return f"{'an' if kind.__name__[0] in 'aeiou' else 'a'} {kind.__name__}"
