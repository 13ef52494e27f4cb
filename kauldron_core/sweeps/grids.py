"""The functions that an axis text can call for evenly spaced values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kauldron_core.errors import ConfigError
from kauldron_core.sweeps.sampling import rounded

_MAX_POINTS = 1_000_000


def range_(start: Any, stop: Any, step: Any = 1) -> Sequence[int]:
    """Returns the ints from `start` to before `stop`."""
    if not all(type(bound) is int for bound in (start, stop, step)):
        raise ConfigError("range takes ints; linspace(start, stop, num) takes other numbers")
    if not step:
        raise ConfigError("the step of a range cannot be 0")
    _check_count(len(values := range(start, stop, step)), "this range has no values")
    return values


def linspace(start: float, stop: float, num: int) -> Sequence[float]:
    """Returns `num` evenly spaced numbers, both ends included."""
    _check_ends(start, stop, num)
    return _spaced(start, stop, num, lambda part: start + (stop - start) * part)


def logspace(start: float, stop: float, num: int) -> Sequence[float]:
    """Returns `num` numbers that grow by a constant factor, both ends (not exponents) included."""
    _check_ends(start, stop, num)
    if start <= 0 or stop <= 0:
        hint = f"; write logspace(1e{start}, 1e{stop}, {num})" if max(abs(start), abs(stop)) < 300 else ""
        raise ConfigError(f"logspace takes its end points, not exponents, and both have to be above 0{hint}")
    low, high = math.log10(start), math.log10(stop)
    return _spaced(start, stop, num, lambda part: 10 ** (low + (high - low) * part))


GRIDS: Mapping[str, tuple[Callable[..., Sequence[Any]], Sequence[str]]] = {
    "range": (range_, ("start", "stop", "step")),
    "linspace": (linspace, ("start", "stop", "num")),
    "logspace": (logspace, ("start", "stop", "num")),
}
"""Each function with the names of its arguments."""


def _spaced(start: float, stop: float, num: int, at: Callable[[float], float]) -> Sequence[float]:
    if num == 1:
        return [float(start)]
    return [float(start), *(rounded(at(index / (num - 1))) for index in range(1, num - 1)), float(stop)]


def _check_ends(start: Any, stop: Any, num: Any) -> None:
    if not (math.isfinite(start) and math.isfinite(stop) and math.isfinite(float(stop) - float(start))):
        raise ConfigError("the end points have to be finite")
    if type(num) is not int or num < 1:
        raise ConfigError(f"the number of points is {num!r}, not an int of at least 1")
    _check_count(num, "")


def _check_count(num: int, nothing: str) -> None:
    if not num:
        raise ConfigError(nothing)
    if num > _MAX_POINTS:
        raise ConfigError(f"{num} points are too many for one axis (at most {_MAX_POINTS})")
