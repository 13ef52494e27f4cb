"""Axes of a sweep: explicit values, random draws, and how they combine. All are lists of points in the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from kauldron_core.errors import ConfigError
from kauldron_core.sweeps.draws import Point, drawn_points
from kauldron_core.sweeps.sampling import Distribution, fraction


@runtime_checkable
class Points(Protocol):
    """Anything that expands to points."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that a point may set, in order."""
        ...

    @property
    def is_random(self) -> bool:
        """Whether the number of points is that of the samples asked for."""
        ...

    def points(self, num_samples: int, seed: int) -> list[Point]:
        """Returns the points; random ones are drawn `num_samples` times."""
        ...


@dataclass(frozen=True)
class Axis:
    """Explicit values of one path, or rows of values of several that move together.

    Attributes:
      paths: The path, or the paths of a zip.
      values: The values; for several paths one row (a tuple) a point.
    """

    paths: tuple[str, ...]
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError(f"--sweep.{','.join(self.paths)}: an axis without values.")
        if len(set(self.paths)) != len(self.paths):
            raise ConfigError(f"--sweep.{','.join(self.paths)}: a path is zipped with itself.")
        for row in self.values if len(self.paths) > 1 else ():
            if not isinstance(row, tuple) or len(cast("tuple[Any, ...]", row)) != len(self.paths):
                raise ConfigError(f"--sweep.{','.join(self.paths)}: {row!r} is not a row of {len(self.paths)} values.")

    is_random = False

    def __len__(self) -> int:
        return len(self.values)

    def points(self, num_samples: int = 1, seed: int = 0) -> list[Point]:
        if len(self.paths) == 1:
            return [((self.paths[0], value),) for value in self.values]
        return [tuple(zip(self.paths, row, strict=True)) for row in self.values]


@dataclass(frozen=True)
class RandomAxis:
    """Draws of one path.

    Attributes:
      path: The path.
      distribution: What is drawn from.
      kind: Type that the field takes; an int field keeps whole draws as ints.
    """

    path: str
    distribution: Distribution
    kind: type | None = None

    is_random = True

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    def draw(self, number: int, seed: int, attempt: int = 0) -> Any:
        """Returns draw `number`; it does not depend on the other draws.

        Args:
          number: Which one.
          seed: The seed.
          attempt: How often it was drawn before, as points that were there.
        """
        return self._fitted(self.distribution.draw(fraction(seed, self.path, number, attempt)))

    def values(self) -> Sequence[Any] | None:
        """Returns all that can be drawn; None where there is no end of it."""
        found = self.distribution.values()
        return None if found is None else [self._fitted(value) for value in found]

    def points(self, num_samples: int, seed: int = 0) -> list[Point]:
        return drawn_points([self], num_samples, seed)

    def _fitted(self, value: Any) -> Any:
        return self.kind(value) if self.kind is not None else value


@dataclass(frozen=True)
class PointList:
    """Points written out one by one, as `sweep()` functions and files of trials do; each may set other paths."""

    rows: tuple[Point, ...]

    is_random = False

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path for point in self.rows for path, _ in point))

    def __len__(self) -> int:
        return len(self.rows)

    def points(self, num_samples: int = 1, seed: int = 0) -> list[Point]:
        return list(self.rows)


@dataclass(frozen=True)
class _Combined:
    """Several parts, each of which sets paths of its own."""

    parts: tuple[Points, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for part in self.parts for path in part.paths)

    @property
    def is_random(self) -> bool:
        return any(part.is_random for part in self.parts)


@dataclass(frozen=True)
class Product(_Combined):
    """Every point of each part with every point of the others; random parts are drawn together, as one part."""

    def __post_init__(self) -> None:
        seen: dict[str, int] = {}
        for number, part in enumerate(self.parts):
            for path in part.paths:
                if seen.setdefault(path, number) != number:
                    raise ConfigError(f"--sweep.{path}: two axes set this path. Keep one, or list its values in one.")

    def points(self, num_samples: int = 1, seed: int = 0) -> list[Point]:
        blocks: list[list[Point]] = []
        drawn_at: int | None = None
        axes = [part for part in self.parts if isinstance(part, RandomAxis)]
        for part in self.parts:
            is_axis = isinstance(part, RandomAxis)
            if is_axis and part is not axes[0]:
                continue  # It is drawn together with the first.
            block = drawn_points(axes, num_samples, seed) if is_axis else part.points(num_samples, seed)
            if part.is_random and drawn_at is not None:
                blocks[drawn_at] = _joined(blocks[drawn_at], block)
                continue
            drawn_at = len(blocks) if part.is_random else drawn_at
            blocks.append(block)
        return [tuple(itertools.chain(*combination)) for combination in itertools.product(*blocks)]


@dataclass(frozen=True)
class Zip(_Combined):
    """The first points of all parts together, then the second, and so on."""

    def points(self, num_samples: int = 1, seed: int = 0) -> list[Point]:
        fixed = [len(part.points(num_samples, seed)) for part in self.parts if not part.is_random]
        blocks = [part.points(fixed[0] if fixed else num_samples, seed) for part in self.parts]
        lengths = [len(block) for block in blocks]
        if len(set(lengths)) > 1:
            pairs = zip(self.parts, blocks, strict=True)
            counts = ", ".join(f"{','.join(part.paths)} has {len(block)}" for part, block in pairs)
            raise ConfigError(f"zipped axes need as many values each: {counts}.")
        return [tuple(itertools.chain(*row)) for row in zip(*blocks, strict=True)]


@dataclass(frozen=True)
class Chain:
    """All points of the first part, then all of the second, and so on."""

    parts: tuple[Points, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path for part in self.parts for path in part.paths))

    @property
    def is_random(self) -> bool:
        return any(part.is_random for part in self.parts)

    def points(self, num_samples: int = 1, seed: int = 0) -> list[Point]:
        return [point for part in self.parts for point in part.points(num_samples, seed)]


def axis(path: str, values: Iterable[Any]) -> Axis:
    """Returns the axis of one path over `values`, those of NumPy as plain numbers.

    Raises:
      ConfigError: If there is one value and not several of them.
    """
    found: Any = plain(values)
    if isinstance(found, (str, bytes, Mapping)) or not hasattr(found, "__iter__"):
        raise ConfigError(f"--sweep.{path}: {found!r} is one value, and an axis is a list of them: [{found!r}].")
    return Axis((path,), tuple(map(plain, found)))


def plain(value: Any) -> Any:
    """Returns arrays and scalars of NumPy and JAX as lists and numbers of Python, anything else as it is."""
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    is_array = hasattr(value, "dtype") and hasattr(value, "tolist")
    return value.tolist() if is_array else value


def product(*parts: Points) -> Product:
    """Returns every combination of the parts' points."""
    return Product(parts)


def zip_axes(*parts: Points) -> Zip:
    """Returns the parts' points side by side; all need the same number."""
    return Zip(parts)


def chain(*parts: Points) -> Chain:
    """Returns the parts' points one after the other."""
    return Chain(parts)


def from_points(points: Iterable[Mapping[str, Any] | Sequence[tuple[str, Any]]]) -> PointList:
    """Returns points written as dictionaries of overrides."""
    return PointList(tuple(tuple(point.items() if isinstance(point, Mapping) else point) for point in points))


def num_points(parts: Iterable[Points], num_samples: int = 1) -> int:
    """Returns how many trials a sweep over `parts` has."""
    return len(Product(tuple(parts)).points(num_samples, 0))


def _joined(first: list[Point], second: list[Point]) -> list[Point]:
    if len(first) != len(second):
        raise ConfigError(f"random axes drawn together need as many points each, got {len(first)} and {len(second)}.")
    return [(*left, *right) for left, right in zip(first, second, strict=True)]
