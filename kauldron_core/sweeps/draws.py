"""Points that are drawn one after the other and differ while they can: what was drawn before is drawn again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from kauldron_core.sweeps.sampling import MAX_VALUES, fraction

Point: TypeAlias = tuple[tuple[str, Any], ...]
"""Overrides that belong together, as (path, value)."""

_P = TypeVar("_P")
_MAX_DRAWS = 64
"""In a space that is too large to look through for what is left, so many draws are hardly ever all known."""


class Drawn(Protocol):
    """What a path is given by draws."""

    @property
    def path(self) -> str:
        """The path."""
        ...

    def draw(self, number: int, seed: int, attempt: int = 0) -> Any:
        """Returns draw `number`, drawn anew for each attempt."""
        ...

    def values(self) -> Sequence[Any] | None:
        """Returns all that can be drawn; None where there is no end of it."""
        ...


def drawn_points(axes: Sequence[Drawn], num_samples: int, seed: int) -> list[Point]:
    """Returns the points of axes that are drawn together: distinct ones while there are any, then repeats.

    Point `k` depends on the seed, the axes and `k` alone, so more samples change none that was there before.
    """
    known: set[str] = set()
    points: list[Point] = []
    size = number_of_values([axis.values() for axis in axes])
    for number in range(num_samples):
        if len(known) == size:
            point = _point(axes, number, seed)
        else:
            point = distinct(
                lambda attempt, number=number: _point(axes, number, seed, attempt),
                lambda point: repr(point) in known,
                lambda: _every(axes),
                pick=fraction(seed, "", number),
                size=size,
            )
        points.append(point)
        known.add(repr(point))
    return points


def distinct(
    draw: Callable[[int], _P],
    is_known: Callable[[_P], bool],
    every: Callable[[], Iterator[_P]],
    *,
    pick: float,
    size: int | None,
) -> _P:
    """Returns a draw that is not known; after many that are, one of those that are left; a known one if none is.

    Args:
      draw: Gives the draw of an attempt.
      is_known: Whether a point has been drawn before.
      every: All points that there are, if their number is finite.
      pick: From [0, 1): which of those that are left.
      size: How many points there are; None: no end.
    """
    for attempt in range(_MAX_DRAWS):
        if not is_known(point := draw(attempt)):
            return point
    left = [point for point in every() if not is_known(point)] if size is not None and size <= MAX_VALUES else []
    return left[int(pick * len(left))] if left else draw(0)


def number_of_values(columns: Sequence[Sequence[Any] | None]) -> int | None:
    """Returns how many points there are with a value of each column; None: no end, as one column has no end (None)."""
    counts = [None if column is None else len({repr(value) for value in column}) for column in columns]
    return None if None in counts else math.prod(count for count in counts if count is not None)


def _point(axes: Sequence[Drawn], number: int, seed: int, attempt: int = 0) -> Point:
    return tuple((axis.path, axis.draw(number, seed, attempt)) for axis in axes)


def _every(axes: Sequence[Drawn]) -> Iterator[Point]:
    columns = [[(axis.path, value) for value in axis.values() or ()] for axis in axes]
    return itertools.product(*columns)
