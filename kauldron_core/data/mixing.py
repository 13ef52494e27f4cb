"""Which data set comes at which position of a mixture: pure functions of the position."""

from __future__ import annotations

import fractions
import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from kauldron_core.errors import ConfigError

# Longest pattern. Weights that need a longer one are rounded to one part in so many.
_LONGEST_PERIOD = 10_000


class Places(NamedTuple):
    """Where examples of a mixture come from.

    Attributes:
      part: Number of the data set, for each position.
      position: Position in the endless stream of that data set.
    """

    part: np.ndarray
    position: np.ndarray


class Pattern(Protocol):
    """The sequence of data sets in a mixture."""

    @property
    def length(self) -> int:
        """Positions in one epoch."""
        ...

    def places(self, positions: np.ndarray) -> Places:
        """Returns where the examples at `positions` come from."""
        ...


class Concatenated:
    """One data set after the other, each of them whole, in every epoch."""

    def __init__(self, sizes: Sequence[int]):
        self._sizes = np.array(sizes)
        self._ends = np.cumsum(self._sizes)
        self.length = int(self._ends[-1])

    def places(self, positions: np.ndarray) -> Places:
        epochs, offsets = np.divmod(positions, self.length)
        part = np.searchsorted(self._ends, offsets, side="right")
        size = self._sizes[part]
        return Places(part, epochs * size + offsets - (self._ends[part] - size))


class Weighted:
    """Data sets in turn, by weight: a fixed period in which each is spread evenly, over and over.

    Args:
      sizes: Examples in each data set.
      weights: Share of each, up to a factor.
      ends_with_first: Whether an epoch ends when the first data set is used up, rather than when the last one is;
        the others then begin again.
    """

    def __init__(self, sizes: Sequence[int], weights: Sequence[float], *, ends_with_first: bool):
        self._counts = period_counts(weights)
        parts = np.repeat(np.arange(len(self._counts)), self._counts)
        times = np.concatenate([(np.arange(count) + 0.5) / count for count in self._counts])
        # Ties go to the data set that is named first.
        order = np.lexsort((parts, times))
        self._period = parts[order]
        self._places = [np.flatnonzero(self._period == part) for part in range(len(self._counts))]
        self._rank = np.empty_like(self._period)
        for places in self._places:
            self._rank[places] = np.arange(len(places))
        self.length = self._epoch_length(sizes, ends_with_first)

    def _epoch_length(self, sizes: Sequence[int], ends_with_first: bool) -> int:
        if ends_with_first:
            return min(self._place_of(part, size) for part, size in enumerate(sizes))
        return 1 + max(self._place_of(part, size - 1) for part, size in enumerate(sizes))

    def _place_of(self, part: int, example: int) -> int:
        """Returns the position at which the example number `example` (from 0) of data set `part` comes."""
        period, rank = divmod(example, int(self._counts[part]))
        return period * len(self._period) + int(self._places[part][rank])

    def places(self, positions: np.ndarray) -> Places:
        periods, offsets = np.divmod(positions, len(self._period))
        part = self._period[offsets]
        return Places(part, periods * self._counts[part] + self._rank[offsets])


def period_counts(weights: Sequence[float]) -> np.ndarray:
    """Returns how often each data set comes in one period.

    Raises:
      ConfigError: If a weight is not a positive number.
    """
    if not all(isinstance(weight, (int, float)) and 0 < weight < math.inf for weight in weights):
        raise ConfigError(f"weights {list(weights)} are not all positive numbers.")
    # Through text 0.1 is a tenth, and not the nearest binary fraction.
    shares = [fractions.Fraction(str(weight)) for weight in weights]
    total = sum(shares)
    common = math.lcm(*((share / total).denominator for share in shares))
    if common > _LONGEST_PERIOD:
        return np.array([max(round(share / total * _LONGEST_PERIOD), 1) for share in shares])
    return np.array([int(share / total * common) for share in shares])
