"""Reads axis texts: `[1e-3, 1e-2]`, `range(3)`, `logspace(1e-4, 1e-1, 4)`, `loguniform(1e-5, 1e-1)`."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kauldron_core.errors import ConfigError, closest
from kauldron_core.konfig.axes import Axis, RandomAxis
from kauldron_core.konfig.names import Aliases, Names
from kauldron_core.konfig.places import find_place
from kauldron_core.konfig.refusal import refusal, shown
from kauldron_core.konfig.sampling import PARAMETERS, Distribution, rounded
from kauldron_core.konfig.slots import Slot
from kauldron_core.konfig.splitting import inside, partition_outside, split_items, split_outside
from kauldron_core.konfig.values import read_value

_FLAG = "--sweep."
_CALL = re.compile(r"([A-Za-z_][\w.]*)\s*\(", re.ASCII)
_MAX_POINTS = 1_000_000

_GRIDS: Mapping[str, Sequence[str]] = {
    "range": ("start", "stop", "step"),
    "linspace": ("start", "stop", "num"),
    "logspace": ("start", "stop", "num"),
}
FUNCTIONS = (*_GRIDS, *PARAMETERS)
"""What an axis text can call."""


def parse_axis(
    cfg: Any, path: str, text: str, *, aliases: Aliases | None = None, names: Names | None = None
) -> Axis | RandomAxis:
    """Returns the axis that `--sweep.PATH=TEXT` means for a config; its values are checked against the field.

    Args:
      cfg: The config, with the overrides that come before the sweep applied.
      path: A path, or several with commas between them for a zip.
      text: The axis text.
      aliases: Module path of each alias of the config file.
      names: The aliases already looked up, where many axes are parsed.

    Raises:
      ConfigError: When the text is no axis, or a value does not fit.
    """
    names = names or Names.of(cfg, aliases)
    singles = split_outside(path, ",")
    slots = [find_place(cfg, single, flag=_FLAG).slot for single in singles]
    at = f"{_FLAG}{path}"
    if len(singles) > 1:
        return Axis(tuple(singles), tuple(_rows(text, slots, names, at)))
    return _Reader(singles[0], text.strip(), slots[0], names).read()


def parse_axes(
    cfg: Any, pairs: Iterable[tuple[str, str]], *, aliases: Aliases | None = None
) -> list[Axis | RandomAxis]:
    """Returns the axes of a command line, each given as (path, text)."""
    names = Names.of(cfg, aliases)
    return [parse_axis(cfg, path, text, names=names) for path, text in pairs]


def from_strings(
    cfg: Any, texts: Iterable[str], *, aliases: Aliases | None = None
) -> list[Axis | RandomAxis]:
    """Returns the axes written as `PATH=TEXT`, as after `--sweep.`."""
    pairs: list[tuple[str, str]] = []
    for text in texts:
        path, equals, values = partition_outside(text.removeprefix(_FLAG), "=")
        if not equals:
            raise ConfigError(refusal(f"{_FLAG}{text}", "an axis is PATH=[VALUE, VALUE]"))
        pairs.append((path.strip().removeprefix("cfg."), values))
    return parse_axes(cfg, pairs, aliases=aliases)


def _rows(text: str, slots: Sequence[Slot], names: Names, at: str) -> list[tuple[Any, ...]]:
    """Returns the rows of a zip."""
    form = "[(" + ", ".join("A" for _ in slots) + "), (" + ", ".join("B" for _ in slots) + ")]"
    items = inside(text, "[")
    if not items:
        raise ConfigError(refusal(at, f"a zip is a list of rows, got {shown(text)}", write=shlex.quote(f"{at}={form}")))
    rows: list[tuple[Any, ...]] = []
    for number, item in enumerate(split_items(items)):
        inner = inside(item, "(") if inside(item, "(") is not None else inside(item, "[")
        cells = split_items(inner) if inner else []
        if len(cells) != len(slots):
            what = f"row {number} is {shown(item)}, not {len(slots)} values in round brackets"
            raise ConfigError(refusal(at, what, write=shlex.quote(f"{at}={form}")))
        rows.append(tuple(read_value(cell, slot, names) for cell, slot in zip(cells, slots, strict=True)))
    return rows


class _Reader:
    """Reads the text of an axis over one path."""

    def __init__(self, path: str, text: str, slot: Slot, names: Names) -> None:
        self.path, self.text, self.slot, self.names = path, text, slot, names

    def read(self) -> Axis | RandomAxis:
        if (items := inside(self.text, "[")) is not None:
            return self._axis(self._items(items))
        match = _CALL.match(self.text)
        arguments = inside(self.text[match.end() - 1 :], "(") if match else None
        if match and arguments is not None:
            return self._called(match[1], arguments)
        raise self._no_axis()

    def _axis(self, values: Sequence[Any]) -> Axis:
        if not values:
            raise self._no_axis("an empty list has no values")
        return Axis((self.path,), tuple(values))

    def _items(self, items: str) -> list[Any]:
        return [self._value(item) for item in split_items(items)] if items else []

    def _value(self, text: str) -> Any:
        if not text:
            raise self._no_axis("a value between two commas is missing")
        return read_value(text, self.slot, self.names)

    def _called(self, name: str, arguments: str) -> Axis | RandomAxis:
        if name not in FUNCTIONS:
            raise self._unknown(name)
        parts = split_items(arguments) if arguments else []
        if name == "choice":
            return self._choice(parts)
        numbers = self._numbers(name, parts)
        try:
            if name == "range":
                return self._axis(self._fitted(_range(*numbers)))
            if name in _GRIDS:
                spaced = _linspace if name == "linspace" else _logspace
                return self._axis(self._fitted(spaced(*numbers)))
            return self._random(Distribution(name, tuple(numbers)))
        except ConfigError as error:
            if str(error).startswith(_FLAG):
                raise
            raise ConfigError(refusal(self.slot.at, f"{self.text}: {str(error).rstrip('.')}")) from None

    def _numbers(self, name: str, parts: Sequence[str]) -> list[Any]:
        """Returns the arguments of a function in order, positional and by name."""
        expected = PARAMETERS.get(name) or _GRIDS[name]
        given: dict[str, Any] = {}
        for position, part in enumerate(parts):
            key, equals, value = partition_outside(part, "=")
            key = key.strip() if equals else (expected[position] if position < len(expected) else "")
            if key not in expected or key in given:
                raise self._wrong_arguments(name, expected)
            given[key] = read_value(
                value if equals else part, Slot(f"{self.slot.at}={name}(...)", None, int | float), self.names
            )
        if name == "range" and given and "stop" not in given:
            given = {"start": 0, "stop": given["start"]}
        required = expected[:2] if name == "range" else expected
        if name == "range" and list(given) == ["stop"]:
            given = {"start": 0, **given}
        if not all(key in given for key in required):
            raise self._wrong_arguments(name, expected)
        return [given[key] for key in expected if key in given]

    def _wrong_arguments(self, name: str, expected: Sequence[str]) -> ConfigError:
        form = f"{name}({', '.join(expected)})" if name != "range" else "range(stop) or range(start, stop, step)"
        return ConfigError(refusal(self.slot.at, f"{self.text} has wrong arguments; the form is {form}"))

    def _fitted(self, values: Sequence[Any]) -> list[Any]:
        """Returns numbers as the field takes them; whole ones become ints for an int field."""
        slot = self.slot
        if _is_int_field(slot) and all(float(value).is_integer() for value in values):
            values = [int(value) for value in values]
        return [_checked(value, slot) for value in values]

    def _choice(self, parts: Sequence[str]) -> RandomAxis:
        items = inside(parts[0], "[") if len(parts) == 1 else None
        values = self._items(items) if items is not None else [self._value(part) for part in parts]
        if not values:
            raise self._no_axis("choice needs at least one value")
        return RandomAxis(self.path, Distribution("choice", tuple(values)))

    def _random(self, distribution: Distribution) -> RandomAxis:
        low, high = distribution.draw(0.0), distribution.draw(1 - 2**-53)
        is_whole = distribution.name in ("randint", "quniform") and float(low).is_integer() and float(high).is_integer()
        if _is_int_field(self.slot) and is_whole and type(distribution.arguments[-1]) is int:
            return RandomAxis(self.path, distribution, int)
        fitted = [_checked(value, self.slot) for value in (low, high)]
        return RandomAxis(self.path, distribution, float if type(fitted[0]) is float else None)

    def _unknown(self, name: str) -> ConfigError:
        short = name.rpartition(".")[2]
        if short in FUNCTIONS:
            right = shlex.quote(f"{self.slot.at}={short}{self.text[len(name) :]}")
            return ConfigError(refusal(self.slot.at, f"{shown(name)} is written {short} here", write=right))
        if "." not in name and (match := closest(name, FUNCTIONS)):
            right = shlex.quote(f"{self.slot.at}={match}{self.text[len(name) :]}")
            return ConfigError(refusal(self.slot.at, f"unknown axis {name!r}", write=right, available=FUNCTIONS))
        return self._no_axis()

    def _no_axis(self, why: str = "") -> ConfigError:
        """Returns the error for a text that is one value, or none, with the list form."""
        text = self.text
        tuple_items = inside(text, "(")
        form = f"[{tuple_items}]" if tuple_items else f"[{text or 'VALUE'}]"
        form = "[VALUE, VALUE]" if text in ("[]", "()", "") or why else form
        what = why or f"{shown(text)} is not a list of values"
        message = refusal(self.slot.at, what, write=shlex.quote(f"{self.slot.at}={form}"), available=FUNCTIONS)
        return ConfigError(message)


def _is_int_field(slot: Slot) -> bool:
    if slot.current is not None:
        return type(slot.current) is int
    return slot.annotation is int


def _checked(value: Any, slot: Slot) -> Any:
    return read_value(repr(value), slot, Names())


def _range(start: Any, stop: Any, step: Any = 1) -> list[int]:
    if not all(type(bound) is int for bound in (start, stop, step)):
        raise ConfigError("range takes ints; use linspace for other numbers")
    if not step:
        raise ConfigError("the step of a range cannot be 0")
    values = range(start, stop, step)
    if not values:
        raise ConfigError("this range has no values")
    _check_count(len(values))
    return list(values)


def _linspace(start: float, stop: float, num: int) -> list[float]:
    _check_grid(start, stop, num)
    if num == 1:
        return [float(start)]
    inner = [rounded(start + (stop - start) * index / (num - 1)) for index in range(1, num - 1)]
    return [float(start), *inner, float(stop)]


def _logspace(start: float, stop: float, num: int) -> list[float]:
    _check_grid(start, stop, num)
    if start <= 0 or stop <= 0:
        raise ConfigError(
            f"logspace takes its end points, not exponents, and both have to be above 0; write logspace(1e{start}, 1e{stop}, {num})"
        )
    if num == 1:
        return [float(start)]
    low, high = math.log10(start), math.log10(stop)
    inner = [rounded(10 ** (low + (high - low) * index / (num - 1))) for index in range(1, num - 1)]
    return [float(start), *inner, float(stop)]


def _check_grid(start: float, stop: float, num: int) -> None:
    if not (math.isfinite(start) and math.isfinite(stop)):
        raise ConfigError("the end points have to be finite")
    if type(num) is not int or num < 1:
        raise ConfigError(f"the number of points is {num!r}, not an int of at least 1")
    _check_count(num)


def _check_count(num: int) -> None:
    if num > _MAX_POINTS:
        raise ConfigError(f"{num} points are too many for one axis (at most {_MAX_POINTS})")
