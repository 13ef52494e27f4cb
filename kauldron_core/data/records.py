"""Examples read from a store of records in an order, and transformed."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core.data import trees
from kauldron_core.data.order import Order, shuffled
from kauldron_core.data.schedule import split_epochs
from kauldron_core.data.transforms.apply import (
    RecordOrigin,
    is_filter,
    is_kept,
    is_random,
    transform_columns,
    transform_record,
)

# Records read at a time when the data is filtered.
_FILTER_CHUNK = 256


class Records(abc.ABC):
    """Records that can be read in any order."""

    is_columnar = False
    """Whether records are stored stacked, so that `read_batch` costs less than `read`."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def read(self, numbers: np.ndarray) -> list[Any]:
        """Returns the records with these numbers."""

    def read_batch(self, numbers: np.ndarray, selections: Sequence[Any]) -> Any:
        """Returns the records with these numbers, stacked.

        Args:
          numbers: Which records.
          selections: Transforms that only choose and name entries. They come first: what they drop need not be read,
            nor fit into an array.
        """
        return transform_columns(selections, trees.stack(self.read(numbers)))

    def shuffled(self, seed: int, survivors: np.ndarray | None) -> Order:
        """Returns the shuffled order that suits the store.

        Args:
          seed: What it follows from.
          survivors: Rising numbers of the records that take part, None for all. The order counts these only.
        """
        return shuffled(len(self) if survivors is None else len(survivors), seed)


def filter_prefix(transforms: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the transforms up to the last filter: what decides which records there are."""
    filters = [step for step, transform in enumerate(transforms) if is_filter(transform)]
    return tuple(transforms[: filters[-1] + 1]) if filters else ()


def surviving_records(records: Records, transforms: Sequence[Any]) -> np.ndarray | None:
    """Returns the numbers of the records that all filters keep, None if there are no filters.

    The whole store is read once. In return the number of examples is known, so that filtered data too is shared among
    hosts without loss and can be resumed at once.
    """
    prefix = filter_prefix(transforms)
    if not prefix:
        return None
    kept = []
    for start in range(0, len(records), _FILTER_CHUNK):
        numbers = range(start, min(start + _FILTER_CHUNK, len(records)))
        elements = records.read(np.array(numbers))
        kept += [number for number, element in zip(numbers, elements, strict=True) if is_kept(prefix, element)]
    return np.array(kept, dtype=np.int64)


def deterministic_prefix(transforms: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the transforms before the first random one."""
    return tuple(itertools.takewhile(lambda transform: not is_random(transform), transforms))


class CachedRecords(Records):
    """Records kept in memory once they have been read and transformed.

    Args:
      records: Where they are read.
      transforms: Deterministic transforms whose outcome is kept.
    """

    def __init__(self, records: Records, transforms: Sequence[Any]):
        self._records = records
        self._transforms = transforms
        self._kept: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._records)

    def read(self, numbers: np.ndarray) -> list[Any]:
        # A batch that reaches into the next epoch may hold a record twice.
        missing = np.array([number for number in np.unique(numbers) if number not in self._kept], np.int64)
        if len(missing):
            for number, element in zip(missing.tolist(), self._records.read(missing), strict=True):
                self._kept[number] = transform_record(self._transforms, element, RecordOrigin(None, 0, number))
        # New dictionaries around the same arrays, lest a later transform adds its entries to what is kept.
        return [jax.tree.map(lambda leaf: leaf, self._kept[number]) for number in numbers.tolist()]

    def shuffled(self, seed: int, survivors: np.ndarray | None) -> Order:
        return self._records.shuffled(seed, survivors)


class OrderedExamples:
    """The stream of a store's records: ordered, epoch after epoch, and transformed.

    Args:
      records: The store.
      order: Which record comes when.
      transforms: Steps that each goes through.
      num_applied: How many of the first steps the store has applied already.
      seed: Seed of the random ones among them.
      survivors: Numbers of the records that filters keep, None for all; `order` counts these only.
    """

    def __init__(
        self,
        records: Records,
        order: Order,
        *,
        transforms: Sequence[Any] = (),
        num_applied: int = 0,
        seed: int | None = None,
        survivors: np.ndarray | None = None,
    ):
        self._records = records
        self._order = order
        self._transforms = transforms
        self._num_applied = num_applied
        self._seed = seed
        self._survivors = survivors
        self.num_examples = len(records) if survivors is None else len(survivors)
        applied = [transform for transform in transforms if not is_filter(transform)]
        self._selections = list(itertools.takewhile(lambda transform: hasattr(transform, "is_selection"), applied))
        self._rest = applied[len(self._selections) :]
        self.is_vectorized = records.is_columnar and all(hasattr(transform, "map_batch") for transform in applied)

    def gather(self, positions: np.ndarray) -> Any:
        """Returns the examples at rising `positions` of the endless stream, stacked."""
        pieces = [(epoch, self._numbers(epoch, part)) for epoch, part in split_epochs(positions, self.num_examples)]
        numbers = pieces[0][1] if len(pieces) == 1 else np.concatenate([piece for _, piece in pieces])
        if self.is_vectorized:
            return transform_columns(self._rest, self._records.read_batch(numbers, self._selections))
        origins = [RecordOrigin(self._seed, epoch, number) for epoch, piece in pieces for number in piece.tolist()]
        elements = zip(self._records.read(numbers), origins, strict=True)
        skip = self._num_applied
        return trees.stack([transform_record(self._transforms, *element, skip=skip) for element in elements])

    def _numbers(self, epoch: int, offsets: np.ndarray) -> np.ndarray:
        numbers = self._order.records(epoch, offsets)
        return numbers if self._survivors is None else self._survivors[numbers]
