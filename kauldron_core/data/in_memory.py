"""`InMemoryPipeline`: data that fits in memory, read at the speed of NumPy."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np

from kauldron_core.data import trees
from kauldron_core.data.order import Order, Sequential, Shuffled, require_seed
from kauldron_core.data.random_access import Examples, RandomAccessPipeline
from kauldron_core.data.schedule import split_epochs
from kauldron_core.data.shared import Identity
from kauldron_core.data.transforms.apply import Origin, transform_batch
from kauldron_core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class InMemoryPipeline(RandomAccessPipeline):
    """Pipeline over a tree of arrays.

    The order of epoch `e` is `numpy.random.Generator(Philox(key=seed).jumped(e)).shuffle`.

    Attributes:
      loader: Returns a tree (mostly a dictionary) of arrays with a leading dimension of examples. Called once.
    """

    loader: Callable[[], Any]

    def _data_key(self) -> Hashable:
        return Identity(self.loader)

    def _load(self) -> Any:
        arrays = jax.tree.map(np.asarray, self.loader())
        try:
            trees.num_rows(arrays)
        except ConfigError as error:
            raise ConfigError(f"{self}: {error}") from None
        return arrays

    def _examples(self) -> Examples:
        return self._ordered_examples

    @functools.cached_property
    def _ordered_examples(self) -> Examples:
        arrays = self._opened.get(self._load)
        num_examples = trees.num_rows(arrays)
        order = Shuffled(num_examples, require_seed(self.seed, str(self))) if self.shuffle else Sequential()
        return _Rows(arrays, order, tuple(self.transforms), self.seed)


class _Rows:
    """Rows of arrays in an order."""

    def __init__(self, arrays: Any, order: Order, transforms: tuple[Any, ...], seed: int | None):
        self._arrays = arrays
        self._order = order
        self._transforms = transforms
        self._seed = seed
        self.num_examples = trees.num_rows(arrays)

    def gather(self, positions: range) -> Any:
        pieces = [
            (epoch, self._order.records(epoch, offsets))
            for epoch, offsets in split_epochs(positions, self.num_examples)
        ]
        rows = pieces[0][1] if len(pieces) == 1 else np.concatenate([rows for _, rows in pieces])
        batch = trees.take_rows(self._arrays, rows)
        if not self._transforms:
            return batch
        origins = [Origin(self._seed, epoch, int(row)) for epoch, rows in pieces for row in rows]
        return transform_batch(self._transforms, batch, origins)
