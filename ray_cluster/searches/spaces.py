"""What an adaptive search may choose: the axes of the override grammar as dimensions, and values turned back to points.

A searcher sees numbers only: a value of a list is its position in it. So a tuple stays a tuple and None stays None,
with every searcher.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kauldron_core import sweeps
from kauldron_core.errors import ConfigError
from kauldron_core.sweeps.sampling import fraction
from kauldron_core.sweeps.trial_names import encoded

Point = tuple[tuple[str, Any], ...]
"""Overrides as `(path, value)` pairs."""

_LAST = 1 - 2**-53


def identity(point: Iterable[tuple[str, Any]]) -> str:
    """Returns a text that is equal for equal points, also after a config has taken a whole number as a float."""
    return "\n".join(sorted(f"{path}={encoded(_number(value))}" for path, value in point))


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True)
class Dimension:
    """One thing that a search chooses.

    Attributes:
      name: The path, or the paths of a zip with commas.
      choices: The points to choose from; None for a range of numbers.
      axis: The range of numbers.
    """

    name: str
    choices: tuple[Point, ...] | None = None
    axis: sweeps.RandomAxis | None = None

    def point(self, raw: Any) -> Point:
        """Returns what a searcher's number stands for."""
        if self.choices is not None:
            return self.choices[int(raw)]
        axis = self._range
        return ((axis.path, axis.kind(raw) if axis.kind is not None else raw),)

    def ends(self) -> list[Point]:
        """Returns the points to look at before anything starts: every choice, or both ends of a range."""
        if self.choices is not None:
            return list(self.choices)
        axis = self._range
        found = [axis.distribution.draw(fraction) for fraction in (0.0, _LAST)]
        return [((axis.path, axis.kind(value) if axis.kind is not None else value),) for value in found]

    def raw(self, point: dict[str, Any]) -> Any:
        """Returns the number that stands for what `point` holds of this dimension."""
        if self.choices is None:
            return point[self._range.path]
        own = [identity((path, point[path]) for path, _ in one) for one in self.choices]
        return next(at for at, one in enumerate(self.choices) if identity(one) == own[at])

    def drawn(self, number: int, seed: int, attempt: int = 0) -> Any:
        """Returns draw `number`, as an explicit sweep over the same axis has it."""
        if self.choices is not None:
            return int(fraction(seed, self.name, number, attempt) * len(self.choices))
        return self._range.draw(number, seed, attempt)

    def values(self) -> Sequence[Any] | None:
        """Returns every number; None where there is no end of it."""
        return range(len(self.choices)) if self.choices is not None else self._range.values()

    def __str__(self) -> str:
        if self.choices is None:
            return str(self._range.distribution)
        rows = [tuple(value for _, value in point) for point in self.choices]
        return f"[{', '.join(repr(row[0] if len(row) == 1 else row) for row in rows)}]"

    @property
    def _range(self) -> sweeps.RandomAxis:
        if self.axis is None:
            raise ConfigError(f"--sweep.{self.name}: is no range of numbers.")
        return self.axis


@dataclass(frozen=True)
class Conditional:
    """A space written as a function: what it asks for may depend on what it got.

    Example, in a config file, for `--sweep=size`::

        def sweep_size(choose):
            if choose("model.hidden", "choice([32, 128])") == 128:
                choose("optimizer.learning_rate", "loguniform(1e-4, 1e-2)")

    Attributes:
      function: Called with `choose(path, axis_text)`, which returns the chosen value.
      config: The config that the paths belong to.
      aliases: What the names of the config file stand for.
    """

    function: Callable[[Callable[[str, str], Any]], Any]
    config: Any = field(repr=False)
    aliases: Any = field(default=None, repr=False)

    is_random = True
    paths = ()

    def points(self, num_samples: int, seed: int) -> list[Point]:
        """Refuses: only a search can choose."""
        del num_samples, seed
        raise ConfigError("--sweep: a function that chooses needs a search: --run.search=optuna.")

    def collect(self, choose: Callable[[Dimension], Any]) -> Point:
        """Runs the function and returns the point that it put together.

        Args:
          choose: Gives a number for each dimension that the function asks for.
        """
        found: dict[str, Any] = {}

        def ask(path: str, text: str) -> Any:
            dimension = dimension_of(sweeps.parse_axis(self.config, path, text, aliases=self.aliases))
            # Another branch may ask for the same path from other values: a searcher keeps the two apart.
            dimension = replace(dimension, name=f"{path}={text}".replace("/", "|"))
            chosen = dimension.point(choose(dimension))
            found.update(chosen)
            return chosen[0][1] if len(chosen) == 1 else tuple(value for _, value in chosen)

        self.function(ask)
        return tuple(found.items())

    def ends(self) -> list[Point]:
        """Returns two points: with the first of everything, and with the last."""
        first = self.collect(lambda one: 0 if one.choices is not None else one.ends()[0][0][1])
        last = self.collect(lambda one: len(one.choices) - 1 if one.choices is not None else one.ends()[1][0][1])
        return [first, last]


@dataclass(frozen=True)
class SearchSpace:
    """The dimensions of a search, or the one function that asks for them."""

    dimensions: tuple[Dimension, ...] = ()
    conditional: Conditional | None = None

    @classmethod
    def of(cls, axes: Iterable[sweeps.Points]) -> SearchSpace:
        """Returns the space that axes span.

        Raises:
          ConfigError: If there is nothing to choose, or a function stands beside other axes.
        """
        parts = list(itertools.chain(*(getattr(axis, "parts", None) or (axis,) for axis in axes)))
        functions = [part for part in parts if isinstance(part, Conditional)]
        if functions and len(parts) > 1:
            raise ConfigError("--sweep: a function that chooses is the whole space; put the other axes into it.")
        if not parts:
            raise ConfigError("--run.search: there is nothing to choose; add an axis, such as --sweep.PATH=[VALUES].")
        if functions:
            return cls(conditional=functions[0])
        return cls(dimensions=tuple(dimension_of(part) for part in parts))

    def point(self, raw: Mapping[str, Any]) -> Point:
        """Returns the point that a searcher's numbers stand for."""
        return tuple(itertools.chain(*(one.point(raw[one.name]) for one in self.dimensions)))

    def raw(self, point: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """Returns the numbers that stand for a point."""
        values = dict(point)
        return {one.name: one.raw(values) for one in self.dimensions}

    def drawn(self, number: int, seed: int, attempt: int = 0) -> Point:
        """Returns point `number` of a random search; it depends on nothing but these numbers.

        Args:
          number: Number of the trial.
          seed: The seed.
          attempt: How often it was drawn before, as points that stood already.
        """
        if self.conditional is not None:
            return self.conditional.collect(lambda one: one.drawn(number, seed, attempt))
        return self.point({one.name: one.drawn(number, seed, attempt) for one in self.dimensions})

    @property
    def size(self) -> int | None:
        """How many points there are; None where there is no end of them, or nobody would look through them."""
        if self.conditional is not None:
            return None
        if any(one.values() is None for one in self.dimensions):
            return None
        return math.prod(len({identity(one.point(raw)) for raw in one.values() or ()}) for one in self.dimensions)

    def every(self) -> Iterator[Point]:
        """Yields all points of a space that has a size."""
        columns = [[one.point(raw) for raw in one.values() or ()] for one in self.dimensions]
        return (tuple(itertools.chain(*row)) for row in itertools.product(*columns))

    def describe(self) -> list[str]:
        """Returns a text a dimension; equal for equal spaces."""
        if self.conditional is not None:
            return [f"{getattr(self.conditional.function, '__qualname__', self.conditional.function)}()"]
        return [f"{one.name}={one}" for one in self.dimensions]

    def ends(self) -> list[Point]:
        """Returns points that hold every choice and both ends of every range, each of them once."""
        if self.conditional is not None:
            return self.conditional.ends()
        columns = [one.ends() for one in self.dimensions]
        number = max(map(len, columns))
        return [
            tuple(itertools.chain(*(column[min(at, len(column) - 1)] for column in columns))) for at in range(number)
        ]


def dimension_of(axis: sweeps.Points) -> Dimension:
    """Returns an axis as a dimension."""
    name = ",".join(axis.paths)
    if isinstance(axis, sweeps.RandomAxis):
        if axis.distribution.name != "choice":
            return Dimension(name, axis=axis)
        return Dimension(name, choices=tuple(((axis.path, value),) for value in axis.distribution.arguments))
    if axis.is_random:
        raise ConfigError(f"--sweep.{name}: a search takes random axes one by one, not zipped or chained.")
    points: Sequence[Point] = axis.points(1, 0)
    return Dimension(name, choices=tuple(points))
