"""`InMemoryPipeline`: data that fits in memory, read at the speed of NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core.data import trees
from kauldron_core.data.order import Order, Shuffled
from kauldron_core.data.records import Records
from kauldron_core.data.shared import SameObject
from kauldron_core.data.stored import StoredPipeline
from kauldron_core.data.transforms.apply import transform_columns


@dataclasses.dataclass(frozen=True)
class InMemoryPipeline(StoredPipeline):
    """Pipeline over a tree of arrays.

    The order of epoch `e` is `numpy.random.Generator(Philox(key=seed).jumped(e)).shuffle`.

    Attributes:
      loader: Returns a tree (mostly a dictionary) of arrays with a leading dimension of examples. Called once.
    """

    loader: Callable[[], Any]

    def _source_key(self) -> SameObject:
        return SameObject(self.loader)

    def _open_records(self) -> Records:
        return ArrayRecords(self.loader())


class ArrayRecords(Records):
    """Records stored as the rows of a tree of arrays.

    Raises:
      ConfigError: If the arrays differ in their number of rows.
    """

    is_columnar = True

    def __init__(self, arrays: Any):
        self._arrays = jax.tree.map(np.asarray, arrays)
        self._leaves, self._structure = jax.tree.flatten(self._arrays)
        self._length = trees.num_rows(self._arrays)

    def __len__(self) -> int:
        return self._length

    def read(self, numbers: np.ndarray) -> list[Any]:
        return trees.unstack(trees.take_rows(self._arrays, numbers))

    def read_batch(self, numbers: np.ndarray, selections: Sequence[Any]) -> Any:
        if selections:
            return trees.take_rows(transform_columns(selections, self._arrays), numbers)
        # As `take_rows`, without taking the tree apart for each batch.
        return self._structure.unflatten([leaf.take(numbers, axis=0) for leaf in self._leaves])

    def shuffled(self, seed: int, survivors: np.ndarray | None) -> Order:
        # Whatever the size: data in memory dwarfs its permutation.
        return Shuffled(len(self) if survivors is None else len(survivors), seed)
