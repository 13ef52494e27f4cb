"""Reads axis texts: `[1e-3, 1e-2]`, `range(3)`, `logspace(1e-4, 1e-1, 4)`, `loguniform(1e-5, 1e-1)`."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from kauldron_core import paths
from kauldron_core.errors import ConfigError, closest, shown
from kauldron_core.konfig.overrides.names import Aliases, Names
from kauldron_core.konfig.overrides.places import find_place
from kauldron_core.konfig.overrides.refusal import Refused, refusal
from kauldron_core.konfig.overrides.slots import Slot
from kauldron_core.konfig.overrides.splitting import (
    inside,
    is_unfinished,
    partition_key,
    partition_outside,
    split_items,
    split_outside,
)
from kauldron_core.konfig.overrides.values import fitted, read_value
from kauldron_core.sweeps.axes import Axis, RandomAxis
from kauldron_core.sweeps.grids import GRIDS
from kauldron_core.sweeps.sampling import PARAMETERS, Distribution

FLAG = "--sweep."
FUNCTIONS = (*GRIDS, *PARAMETERS)
"""What an axis text can call."""

_CALL = re.compile(r"([A-Za-z_][\w.]*)\s*(?=\()", re.ASCII)


def parse_axis(
    cfg: Any, path: str, text: str, *, aliases: Aliases | None = None, names: Names | None = None
) -> Axis | RandomAxis:
    """Returns the axis that `--sweep.PATH=TEXT` means for a config; its values are checked against the field.

    Args:
      cfg: The config, with the overrides that come before the sweep applied.
      path: A path, or several with commas between them for a zip.
      text: The axis text.
      aliases: What the names of the config file stand for.
      names: The names already looked up, where many axes are parsed.

    Raises:
      ConfigError: When the text is no axis, or a value does not fit.
    """
    names = names or Names.of(cfg, aliases)
    singles = split_outside(path, ",")
    if "cfg" not in cfg:
        singles = [single.removeprefix("cfg.") for single in singles]
    slots = [find_place(cfg, single, flag=FLAG).slot for single in singles]

    def read(text: str) -> Axis | RandomAxis:
        if len(singles) > 1:
            return _ZipReader(singles, text, slots, names).read()
        return _AxisReader(singles[0], text, slots[0], names).read()

    try:
        return read(text.strip())
    except Refused as error:
        raise error.tried(read) from None


def parse_axes(
    cfg: Any, pairs: Iterable[tuple[str, str]], *, aliases: Aliases | None = None, trusted: bool = True
) -> list[Axis | RandomAxis]:
    """Returns the axes of a command line, each given as (path, text), in the same order.

    An axis inside of what another one replaces (`optimizer` and `optimizer.b1`) is read against the other one's first
    value.

    Args:
      cfg: The config.
      pairs: Path and text of each axis.
      aliases: What the names of the config file stand for.
      trusted: False for texts that a file holds: they may name only what a config in a file may, and stay untrusted.
    """
    pairs = list(pairs)
    names = Names.of(cfg, aliases, trusted=trusted)
    axes: dict[int, Axis | RandomAxis] = {}
    for number in sorted(range(len(pairs)), key=lambda number: _depth(pairs[number][0])):
        axis = parse_axis(cfg, *pairs[number], names=names)
        axes[number] = axis
        if any(_holds(own, other) for own in axis.paths for other, _ in pairs):
            cfg = copy.deepcopy(cfg)
            for own, value in axis.points(1)[0]:
                find_place(cfg, own, flag=FLAG).set(copy.deepcopy(value))
    return [axes[number] for number in range(len(pairs))]


def from_strings(cfg: Any, texts: Iterable[str], *, aliases: Aliases | None = None) -> list[Axis | RandomAxis]:
    """Returns the axes written as `PATH=TEXT`, as after `--sweep.`."""
    pairs: list[tuple[str, str]] = []
    for text in texts:
        path, equals, values = partition_key(text.removeprefix(FLAG))
        if not equals:
            raise ConfigError(refusal(f"{FLAG}{text}", "an axis is PATH=[VALUE, VALUE]"))
        pairs.append((path.strip(), values))
    return parse_axes(cfg, pairs, aliases=aliases)


def _depth(path: str) -> int:
    """Returns the number of parts of a path, of the shortest one of a zip; 0 for what is no path."""
    try:
        return min(len(paths.parse(single)) for single in split_outside(path, ","))
    except ConfigError:
        return 0


def _holds(path: str, others: str) -> bool:
    """Returns whether `path` holds one of the paths that a zip names."""
    own = paths.parse(path)
    inner = [paths.parse(other) for other in split_outside(others, ",")]
    return any(len(parts) > len(own) and parts[: len(own)] == own for parts in inner)


class _Reader:
    """What reading an axis and reading a zip share."""

    def __init__(self, path: str, text: str, names: Names) -> None:
        self.at, self.text, self.names = f"{FLAG}{path}", text, names

    def items(self, text: str) -> list[str]:
        """Returns the texts of the values between commas."""
        found = split_items(text) if text else []
        if not all(found):
            raise self.no_axis("a value between two commas is missing")
        return found

    def no_axis(self, why: str, right: str = "[VALUE, VALUE]") -> Refused:
        return Refused(self.at, why, right=right, text=self.text, available=FUNCTIONS)

    def value(self, text: str, slot: Slot, start: int = 0) -> Any:
        """Returns one value; a refusal of it shows the whole axis corrected."""
        try:
            return read_value(text, slot, self.names)
        except Refused as error:
            at = self.text.find(text, start)
            before, after = (self.text[:at], self.text[at + len(text) :]) if at >= 0 else ("[", "]")
            raise error.within(self.at, before, after) from None


class _ZipReader(_Reader):
    """Reads the rows of a zip."""

    def __init__(self, singles: Sequence[str], text: str, slots: Sequence[Slot], names: Names) -> None:
        super().__init__(",".join(singles), text, names)
        self.paths, self.slots = tuple(singles), slots

    def read(self) -> Axis:
        items = inside(self.text, "[")
        if not items:
            raise self._no_rows(f"{shown(self.text)} is not a list of rows")
        return Axis(self.paths, tuple(self._row(number, item) for number, item in enumerate(self.items(items))))

    def _row(self, number: int, item: str) -> tuple[Any, ...]:
        inner = inside(item, "(") or inside(item, "[")
        cells = self.items(inner) if inner else []
        if len(cells) != len(self.slots):
            raise self._no_rows(f"row {number} is {shown(item)}, not {len(self.slots)} values in round brackets")
        return tuple(self.value(cell, slot) for cell, slot in zip(cells, self.slots, strict=True))

    def _no_rows(self, why: str) -> Refused:
        row = "(" + ", ".join("VALUE" for _ in self.slots) + ")"
        return self.no_axis(why, f"[{row}, {row}]")


class _AxisReader(_Reader):
    """Reads the text of an axis over one path."""

    def __init__(self, path: str, text: str, slot: Slot, names: Names) -> None:
        super().__init__(path, text, names)
        self.path, self.slot = path, slot

    def read(self) -> Axis | RandomAxis:
        if (items := inside(self.text, "[")) is not None:
            return Axis((self.path,), self._listed(items))
        match = _CALL.match(self.text)
        arguments = inside(self.text[match.end() :], "(") if match else None
        if match and arguments is not None:
            return self._called(match[1], arguments)
        raise self._single()

    def _listed(self, items: str) -> tuple[Any, ...]:
        if not items:
            raise self.no_axis("the list is empty")
        if isinstance(self.slot.current, (list, tuple)) and not any(item[0] in "[(" for item in self.items(items)):
            what = f"the field is a {type(cast('list[Any]', self.slot.current)).__name__}, so each value is one too"
            raise self.no_axis(what, f"[[{items}]]")
        values: list[Any] = []
        start = 0
        for item in self.items(items):
            values.append(self.value(item, self.slot, start))
            start = self.text.find(item, start) + len(item)
        return tuple(values)

    def _single(self) -> Refused:
        """Returns the refusal of a text that is one value, with the list form."""
        in_brackets = inside(self.text, "(")
        right = f"[{in_brackets if in_brackets else self.text or 'VALUE, VALUE'}]"
        if self.text.startswith("[") and is_unfinished(self.text):
            right = f"{self.text.rstrip(' ,')}]"
        kind = "a tuple" if in_brackets else "one value"
        return self.no_axis(f"an axis is a list of values, {shown(self.text)} is {kind}", right)

    def _called(self, name: str, arguments: str) -> Axis | RandomAxis:
        if name not in FUNCTIONS:
            raise self._unknown(name)
        if name == "choice":
            return RandomAxis(self.path, Distribution("choice", self._choices(arguments)))
        try:
            values = self._arguments(name, arguments)
            if name in GRIDS:
                return Axis((self.path,), self._as_field(GRIDS[name][0](*values)))
            return self._random(Distribution(name, tuple(values)))
        except Refused:
            raise
        except ConfigError as error:
            raise Refused(self.at, f"{self.text}: {str(error).rstrip('.')}", text=self.text) from None

    def _choices(self, arguments: str) -> tuple[Any, ...]:
        parts = self.items(arguments)
        listed = inside(parts[0], "[") if len(parts) == 1 else None
        if not parts or listed == "":
            raise self.no_axis("choice needs at least one value", "choice([VALUE, VALUE])")
        items = self.items(listed) if listed else parts
        return tuple(self.value(item, self.slot) for item in items)

    def _arguments(self, name: str, text: str) -> list[Any]:
        """Returns the arguments of a function in order, whether given by position or by name."""
        expected = GRIDS[name][1] if name in GRIDS else PARAMETERS[name]
        given: dict[str, Any] = {}
        for position, part in enumerate(self.items(text)):
            key, equals, value = partition_outside(part, "=")
            key = key.strip() if equals else (expected[position] if position < len(expected) else "")
            if key not in expected or key in given:
                raise self._wrong_arguments(name, expected)
            number = Slot(f"{self.at}={name}({key}=...)", None, int | float)
            given[key] = read_value(value if equals else part, number, self.names)
        if name == "range":
            is_stop_only = list(given) == ["start"]
            given = {"start": 0, "stop": given["start"]} if is_stop_only else {"start": 0, "step": 1, **given}
        if not all(key in given for key in expected if key != "step"):
            raise self._wrong_arguments(name, expected)
        return [given[key] for key in expected if key in given]

    def _wrong_arguments(self, name: str, expected: Sequence[str]) -> Refused:
        form = "range(stop) or range(start, stop, step)" if name == "range" else f"{name}({', '.join(expected)})"
        return Refused(self.at, f"{self.text} has wrong arguments, the form is {form}", text=self.text)

    def _as_field(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Returns numbers as the field takes them; whole ones become ints for an int field."""
        if self._is_int_field and all(float(value).is_integer() for value in values):
            values = [int(value) for value in values]
        return tuple(fitted(value, self.slot, repr(value)) for value in values)

    def _random(self, distribution: Distribution) -> RandomAxis:
        ends = distribution.draw(0.0), distribution.draw(1 - 2**-53)
        if self._is_int_field:
            if distribution.name not in ("randint", "quniform") or not all(float(end).is_integer() for end in ends):
                raise ConfigError(f"{distribution.name} draws floats and the field is an int; use randint(low, high)")
            return RandomAxis(self.path, distribution, int)
        values = [fitted(end, self.slot, repr(end)) for end in ends]
        return RandomAxis(self.path, distribution, float if type(values[0]) is float else None)

    @property
    def _is_int_field(self) -> bool:
        return type(self.slot.current) is int if self.slot.current is not None else self.slot.annotation is int

    def _unknown(self, name: str) -> Refused:
        short = name.rpartition(".")[2]
        right = short if short in FUNCTIONS else None if "." in name else closest(name, FUNCTIONS)
        if right is None:
            return self._single()
        return self.no_axis(f"unknown axis {name!r}", f"{right}{self.text[len(name) :]}")
