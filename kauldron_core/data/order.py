"""Orders: pure functions from (epoch, position in the epoch) to a record number.

Nothing is drawn while iterating, so the order after a restart is the order of an uninterrupted run.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Protocol

import numpy as np

from kauldron_core.errors import ConfigError

# Up to here a permutation is drawn and kept: 8 MiB an epoch.
_LARGEST_DRAWN = 2**20


class Order(Protocol):
    """The order in which the records of one epoch are read."""

    def records(self, epoch: int, offsets: np.ndarray) -> np.ndarray:
        """Returns the record numbers at `offsets` of `epoch`."""
        ...


class Sequential:
    """The records as they are stored."""

    def records(self, epoch: int, offsets: np.ndarray) -> np.ndarray:
        del epoch
        return offsets


class Shuffled:
    """A permutation an epoch, drawn from a counter-based generator: epoch `n` needs none of the epochs before it."""

    def __init__(self, num_examples: int, seed: int):
        self._num_examples = num_examples
        self._seed = seed
        # A batch may straddle two epochs.
        self._permutation = functools.lru_cache(maxsize=2)(self._draw)

    def _draw(self, epoch: int) -> np.ndarray:
        permutation = np.arange(self._num_examples)
        np.random.Generator(np.random.Philox(key=self._seed).jumped(epoch)).shuffle(permutation)
        return permutation

    def records(self, epoch: int, offsets: np.ndarray) -> np.ndarray:
        return self._permutation(epoch)[offsets]


class IndexShuffled:
    """A permutation an epoch that needs no memory: each position is mapped by a block cipher over the index range.

    The cipher works on blocks of 16 bits at least and tries again until the result is in range: slow for small sets.
    """

    def __init__(self, num_examples: int, seed: int):
        # Grain takes 3 s to import; only who uses it should wait.
        from grain import experimental

        self._index_shuffle = experimental.index_shuffle
        self._max_index = num_examples - 1
        self._seed = seed

    def records(self, epoch: int, offsets: np.ndarray) -> np.ndarray:
        seed = mixed_seed(self._seed, epoch)
        shuffle = self._index_shuffle
        return np.fromiter(
            (shuffle(offset, max_index=self._max_index, seed=seed, rounds=4) for offset in offsets.tolist()),
            dtype=np.int64,
            count=len(offsets),
        )


class BlockShuffled:
    """A shuffle for records that lie in blocks of which only a few fit into memory.

    In each epoch the blocks come in a new order, some of them at a time (a window), and so do the records of a window.

    Args:
      sizes: Records in each block.
      costs: Bytes that each block takes.
      window: Bytes that the blocks of one window may take together; one block always does.
      seed: What the order follows from, with the epoch.
    """

    def __init__(self, sizes: np.ndarray, costs: np.ndarray, *, window: int, seed: int):
        self._sizes = sizes
        self._costs = costs
        self._starts = np.cumsum(sizes) - sizes
        self._window = window
        self._seed = seed
        self._windows = functools.lru_cache(maxsize=2)(self._cut)
        # Threads may be at work on both sides of a border.
        self._permutation = functools.lru_cache(maxsize=3)(self._draw)

    def _generator(self, epoch: int, part: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self._seed, counter=(0, 0, part, epoch)))

    def _cut(self, epoch: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Returns the blocks of each window, and the positions at which windows end."""
        blocks = self._generator(epoch, 0).permutation(len(self._sizes))
        windows, cost = [[]], 0
        for block in blocks:
            if windows[-1] and cost + self._costs[block] > self._window:
                windows.append([])
                cost = 0
            windows[-1].append(block)
            cost += self._costs[block]
        arrays = [np.array(window) for window in windows]
        return arrays, np.cumsum([self._sizes[window].sum() for window in arrays])

    def _draw(self, epoch: int, window: int) -> np.ndarray:
        blocks = self._windows(epoch)[0][window]
        ranges = [np.arange(int(self._sizes[block])) + self._starts[block] for block in blocks]
        records = np.concatenate(ranges)
        self._generator(epoch, 1 + window).shuffle(records)
        return records

    def records(self, epoch: int, offsets: np.ndarray) -> np.ndarray:
        _, ends = self._windows(epoch)
        windows = np.searchsorted(ends, offsets, side="right")
        records = np.empty(len(offsets), np.int64)
        for window in np.unique(windows):
            rows = windows == window
            start = ends[window - 1] if window else 0
            records[rows] = self._permutation(epoch, int(window))[offsets[rows] - start]
        return records


def shuffled(num_examples: int, seed: int) -> Order:
    """Returns the shuffled order that suits the size."""
    return Shuffled(num_examples, seed) if num_examples <= _LARGEST_DRAWN else IndexShuffled(num_examples, seed)


def mixed_seed(seed: int, *path: int | str) -> int:
    """Returns a 32-bit seed for the part of `seed` that `path` names (an epoch, the name of a data set)."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha1(text.encode()).digest()[:4], "big")


def require_seed(seed: int | None, owner: str) -> int:
    """Returns `seed`, or raises where a pipeline draws random numbers and nobody gave it a seed."""
    if seed is None:
        raise ConfigError(
            f"{owner} draws random numbers and has no seed. A trainer hands down its own; elsewhere "
            "set one: dataclasses.replace(ds, seed=0)."
        )
    return seed
