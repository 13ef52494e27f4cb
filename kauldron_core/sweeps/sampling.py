"""The random distributions of axes. Each draw depends on seed, path and number only, on any platform and Python
version: more samples change no point that was there before, nor does another axis, but where one was drawn again
(see `draws`)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kauldron_core.errors import ConfigError

MAX_VALUES = 100_000
"""Of more values than this nobody asks which are left."""


@dataclass(frozen=True)
class Distribution:
    """A named distribution with its arguments.

    Attributes:
      name: One of `DISTRIBUTIONS`.
      arguments: Values of its parameters, in order; for `choice` the choices.
    """

    name: str
    arguments: tuple[Any, ...]

    def __post_init__(self) -> None:
        if self.name == "choice":
            _require(bool(self.arguments), "choice needs at least one value")
        else:
            _CHECKS[self.name](*self.arguments)

    def draw(self, fraction: float) -> Any:
        """Returns the value at `fraction` (0 <= fraction < 1) of the distribution."""
        if self.name == "choice":
            return self.arguments[int(fraction * len(self.arguments))]
        return _DRAWS[self.name](fraction, *self.arguments)

    def values(self) -> Sequence[Any] | None:
        """Returns all that can be drawn; None where that has no end, or more than anybody looks through."""
        match self.name:
            case "choice":
                return self.arguments
            case "randint":
                low, high = self.arguments
                return range(low, high) if high - low <= MAX_VALUES else None
            case "quniform":
                first, last = _multiples(*self.arguments)
                q = self.arguments[2]
                return [_multiple(step, q) for step in range(first, last + 1)] if last - first < MAX_VALUES else None
            case _:
                return None

    def __str__(self) -> str:
        inner = ", ".join(repr(argument) for argument in self.arguments)
        return f"{self.name}([{inner}])" if self.name == "choice" else f"{self.name}({inner})"


def fraction(seed: int, path: str, number: int, attempt: int = 0) -> float:
    """Returns a number from [0, 1) that depends on nothing but the arguments."""
    again = f"\n{attempt}" if attempt else ""
    digest = hashlib.sha256(f"{seed}\n{path}\n{number}{again}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 if digest[:7] != b"\xff" * 7 else 1 - 2**-53


PARAMETERS: Mapping[str, Sequence[str]] = {
    "uniform": ("low", "high"),
    "loguniform": ("low", "high"),
    "quniform": ("low", "high", "q"),
    "randint": ("low", "high"),
    "normal": ("mean", "std"),
    "choice": ("values",),
}
"""Parameter names of each distribution; `randint` excludes `high`."""


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ConfigError(what)


def _finite(*numbers: Any) -> None:
    for number in numbers:
        is_number = type(number) in (int, float) and math.isfinite(number)
        _require(is_number, f"{number!r} is not a finite number")


def _check_uniform(low: float, high: float) -> None:
    _finite(low, high)
    _require(low < high, f"low {low!r} has to be below high {high!r}")
    _require(math.isfinite(float(high) - float(low)), f"the range from {low!r} to {high!r} is too wide")


def _check_loguniform(low: float, high: float) -> None:
    _check_uniform(low, high)
    _require(low > 0, f"low {low!r} has to be above 0")


def _check_quniform(low: float, high: float, q: float) -> None:
    _check_uniform(low, high)
    _finite(q)
    _require(0 < q <= high - low, f"q {q!r} has to be above 0 and at most high - low")


def _check_randint(low: int, high: int) -> None:
    _require(type(low) is int and type(high) is int, "randint takes two ints")
    _require(low < high, f"low {low!r} has to be below high {high!r}, which is excluded")


def _check_normal(mean: float, std: float) -> None:
    _finite(mean, std)
    _require(std > 0, f"std {std!r} has to be above 0")


def _uniform(u: float, low: float, high: float) -> float:
    return min(low + (high - low) * u, high)


def _loguniform(u: float, low: float, high: float) -> float:
    return min(max(math.exp(math.log(low) + (math.log(high) - math.log(low)) * u), low), high)


def _quniform(u: float, low: float, high: float, q: float) -> float | int:
    first, last = _multiples(low, high, q)
    return _multiple(first + int(u * (last - first + 1)), q)


def _multiples(low: float, high: float, q: float) -> tuple[int, int]:
    """Returns the first and the last whole number whose multiple of `q` lies in the range."""
    return math.ceil(low / q - 1e-9), math.floor(high / q + 1e-9)


def _multiple(step: int, q: float) -> float | int:
    return step * q if isinstance(q, int) else rounded(step * q)


def _randint(u: float, low: int, high: int) -> int:
    return low + int(u * (high - low))


def _normal(u: float, mean: float, std: float) -> float:
    import statistics  # Loaded on use: it brings decimal and fractions, for this one kind of axis.

    return statistics.NormalDist(mean, std).inv_cdf(max(u, 2**-54))


def rounded(value: float) -> float:
    """Returns the number without the last digit's noise: 0.3 for 0.1 + 0.2."""
    return float(f"{value:.15g}")


_CHECKS: Mapping[str, Callable[..., None]] = {
    "uniform": _check_uniform,
    "loguniform": _check_loguniform,
    "quniform": _check_quniform,
    "randint": _check_randint,
    "normal": _check_normal,
}
_DRAWS: Mapping[str, Callable[..., Any]] = {
    "uniform": _uniform,
    "loguniform": _loguniform,
    "quniform": _quniform,
    "randint": _randint,
    "normal": _normal,
}
