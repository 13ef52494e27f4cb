"""JSON as every reader takes it: NaN and infinities, which JSON has not, are `{"__float__": "NaN"}`.

Python writes them as bare words, for which many readers refuse the whole file. Those of older files are still read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

FLOAT: Final = "__float__"
_NAMES: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def dumps(
    value: Any,
    *,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    default: Callable[[Any], Any] | None = None,
) -> str:
    """Returns `value` as JSON text. The arguments are those of `json.dumps`."""
    try:
        return json.dumps(value, indent=indent, separators=separators, default=default, allow_nan=False)
    except ValueError:  # It holds such a number, or itself, which is said again below.
        finite = strict(value, default=default)
    return json.dumps(finite, indent=indent, separators=separators, default=default, allow_nan=False)


def loads(data: bytes | str) -> Any:
    """Returns the value of JSON text that `dumps` or `json.dumps` wrote.

    Raises:
      ValueError: If it is not JSON.
    """
    value = json.loads(data)
    mark = FLOAT.encode() if isinstance(data, bytes) else FLOAT
    return _restored(value) if mark in data else value  # pyright: ignore[reportOperatorIssue]


def strict(value: Any, *, default: Callable[[Any], Any] | None = None) -> Any:
    """Returns `value` with what JSON has no number for as `loads` reads it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else {FLOAT: _name(value)}
    if isinstance(value, dict):
        return {key: strict(one, default=default) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [strict(one, default=default) for one in value]
    if default is not None and not isinstance(value, str | int | None):
        return strict(default(value), default=default)
    return value


def _name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(name := value.get(FLOAT), str) and name in _NAMES:
            return _NAMES[name]
        return {key: _restored(one) for key, one in value.items()}
    return [_restored(one) for one in value] if isinstance(value, list) else value
