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
_CIPHER_ROUNDS = 6


class Order(Protocol):
    """The order in which the records of one epoch are read."""

    def records(self, epoch: int, offsets: np.ndarray) -> np.ndarray:
        """Returns the record numbers at `offsets` of `epoch`."""
        ...


class InOrder:
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
        _generator(self._seed, epoch).shuffle(permutation)
        return permutation

    def records(self, epoch: int, offsets: np.ndarray) -> np.ndarray:
        return self._permutation(epoch)[offsets]


def _generator(seed: int, epoch: int) -> np.random.Generator:
    """Returns the generator of an epoch: that of the seed, `epoch` jumps of 2**128 numbers further."""
    return np.random.Generator(np.random.Philox(key=seed, counter=(0, 0, epoch, 0)))


class CipherShuffled:
    """A permutation an epoch that needs no memory: a cipher maps each position to its record.

    It is a Feistel network over the smallest number of bits that holds all positions. Whatever it maps outside the set
    it maps again, until it falls inside: at most every second time is one in vain.
    """

    def __init__(self, num_examples: int, seed: int):
        self._num_examples = num_examples
        self._seed = seed
        self._num_bits = max((num_examples - 1).bit_length(), 1)
        self._keys = functools.lru_cache(maxsize=2)(self._draw_keys)

    def _draw_keys(self, epoch: int) -> np.ndarray:
        return _generator(self._seed, epoch).integers(2**64, size=_CIPHER_ROUNDS, dtype=np.uint64)

    def records(self, epoch: int, offsets: np.ndarray) -> np.ndarray:
        keys = self._keys(epoch)
        records = self._encrypted(offsets.astype(np.uint64), keys)
        while (outside := records >= self._num_examples).any():
            records[outside] = self._encrypted(records[outside], keys)
        return records.astype(np.int64)

    def _encrypted(self, numbers: np.ndarray, keys: np.ndarray) -> np.ndarray:
        low_bits = np.uint64(self._num_bits // 2)
        low_mask = np.uint64(2 ** int(low_bits) - 1)
        high_mask = np.uint64(2 ** (self._num_bits - int(low_bits)) - 1)
        high, low = numbers >> low_bits, numbers & low_mask
        for number, key in enumerate(keys):
            if number % 2:
                low = low ^ (_mixed_bits(high ^ key) & low_mask)
            else:
                high = high ^ (_mixed_bits(low ^ key) & high_mask)
        return (high << low_bits) | low


def _mixed_bits(values: np.ndarray) -> np.ndarray:
    """Returns 64-bit numbers in which every bit of `values` takes part everywhere.

    Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014, figure 17 (mix64variant13).
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


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
    return Shuffled(num_examples, seed) if num_examples <= _LARGEST_DRAWN else CipherShuffled(num_examples, seed)


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
