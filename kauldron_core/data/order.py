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
