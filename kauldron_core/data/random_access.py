"""Pipelines whose examples can be read in any order: batch `k` is a pure function of `k`."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, Protocol, Self

import jax
import numpy as np

from kauldron_core.data import trees
from kauldron_core.data.iterator import DataIterator, ScheduledIterator
from kauldron_core.data.pipeline import PADDING_MASK, Pipeline
from kauldron_core.data.schedule import BatchSchedule
from kauldron_core.data.transforms.apply import transform_batch
from kauldron_core.errors import ConfigError

_BLOCK_BYTES = 2**20
_MAX_BLOCK = 64


class Examples(Protocol):
    """The examples of a pipeline, transformed, in the order in which they come."""

    @property
    def num_examples(self) -> int:
        """Examples in one epoch."""
        ...

    def gather(self, positions: np.ndarray) -> Any:
        """Returns the examples at rising `positions` of the endless stream (epoch after epoch), stacked."""
        ...


class Batches:
    """The batches of one host, by number.

    Args:
      examples: The stream that is cut into batches.
      schedule: Where it is cut.
      transforms: Functions of a whole batch.
    """

    def __init__(self, examples: Examples, schedule: BatchSchedule, transforms: tuple[Any, ...] = ()):
        self._examples = examples
        self._transforms = transforms
        self.schedule = schedule

    def __getitem__(self, number: int) -> Any:
        positions = self.schedule.positions(number)
        is_padded = self.schedule.remainder == "pad"
        batch = self._padded(positions) if is_padded else self._examples.gather(positions)
        return transform_batch(self._transforms, batch)

    def starting_at(self, number: int) -> Iterator[Any]:
        """Yields the batches from `number` on. Faster than one by one where they are rows of arrays."""
        while True:
            count = min(self._block, self.schedule.num_full_batches_from(number))
            if count > 1:
                yield from self._cut(number, count)
            else:
                yield self[number]
            number += max(count, 1)

    def _cut(self, number: int, count: int) -> Iterator[Any]:
        """Yields `count` batches that are rows of the same arrays."""
        size = self.schedule.host_batch_size
        leaves, structure = jax.tree.flatten(self._examples.gather(self.schedule.positions(number, count)))
        for start in range(0, count * size, size):
            batch = structure.unflatten([leaf[start : start + size] for leaf in leaves])
            yield transform_batch(self._transforms, batch)

    @functools.cached_property
    def _block(self) -> int:
        """How many batches are gathered at once: a few where they are small, since each gathering costs the same."""
        if self.schedule.remainder == "pad" or not getattr(self._examples, "is_vectorized", False):
            return 1
        row = sum(leaf.nbytes for leaf in jax.tree.leaves(self._first_example))
        return min(max(_BLOCK_BYTES // max(row * self.schedule.host_batch_size, 1), 1), _MAX_BLOCK)

    def _padded(self, positions: np.ndarray) -> dict[str, Any]:
        size = self.schedule.host_batch_size
        batch = self._examples.gather(positions) if len(positions) else None
        if len(positions) < size:
            batch = trees.pad_rows(batch, self._first_example, size - len(positions))
        return with_padding_mask(batch, np.arange(size) < len(positions))

    @functools.cached_property
    def _first_example(self) -> Any:
        # A valid example and the same on every host: rows of zeros could turn into NaN in a user's model.
        return self._examples.gather(np.arange(1))


def with_padding_mask(batch: Any, mask: np.ndarray) -> dict[str, Any]:
    """Returns `batch` with `mask` under `PADDING_MASK`.

    Raises:
      ConfigError: If the batch is no dictionary, or has the key already.
    """
    if not isinstance(batch, dict):
        raise ConfigError(
            f"batch_drop_remainder='pad' puts a mask under {PADDING_MASK!r} and needs examples that are dictionaries, "
            f"not {type(batch).__name__}."
        )
    if PADDING_MASK in batch:
        raise ConfigError(f"the examples have a key {PADDING_MASK!r}, which batch_drop_remainder='pad' needs itself.")
    return {**batch, PADDING_MASK: mask}


def to_global(batch: Any, sharding: Any, schedule: BatchSchedule) -> Any:
    """Returns the hosts' parts of a batch as global arrays.

    Args:
      batch: This host's part.
      sharding: One sharding, or a tree of them that is a prefix of the batch.
      schedule: How many hosts there are.
    """

    def put(leaf: np.ndarray, leaf_sharding: Any) -> jax.Array:
        shape = (leaf.shape[0] * schedule.shard_count, *leaf.shape[1:])
        return jax.make_array_from_process_local_data(leaf_sharding, leaf, shape)

    return jax.tree.map(lambda s, part: jax.tree.map(lambda leaf: put(leaf, s), part), sharding, batch)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomAccessPipeline(Pipeline):
    """Base class of pipelines over data that can be read in any order. Subclasses define `examples`."""

    @abc.abstractmethod
    def examples(self) -> Examples:
        """Returns the examples; opens the data if no variant of this pipeline has done so."""

    @abc.abstractmethod
    def cache(self) -> Self:
        """Returns the same data, each example of which is read only once."""

    def __iter__(self) -> DataIterator:
        batches = self.batches()
        return ScheduledIterator(
            functools.partial(self._feed, batches),
            num_batches=batches.schedule.num_batches,
            order={"batch_size": self.batch_size, **self._order_state(batches.schedule.num_examples)},
        )

    def __len__(self) -> int:
        num_batches = self.batches().schedule.num_batches
        if num_batches is None:
            raise TypeError(f"{self} has num_epochs=None and no end. Set num_epochs, or use take(n).")
        return num_batches

    @property
    def last_batch_size(self) -> int:
        return self.batches().schedule.last_batch_size

    def describe_share(self) -> dict[str, Any]:
        return {**super().describe_share(), "num_examples": self.examples().num_examples}

    @property
    def element_spec(self) -> Any:
        return self._element_spec

    @functools.cached_property
    def _element_spec(self) -> Any:
        batches = self.batches()
        schedule = batches.schedule
        rows = batches[0] if self.batch_transforms else self._one_example(schedule)
        return trees.spec_of(rows, schedule.batch_size)

    def _one_example(self, schedule: BatchSchedule) -> Any:
        """Returns a batch of one, cheaper than a whole one where examples are expensive."""
        example = self.examples().gather(np.arange(1))
        return with_padding_mask(example, np.ones(1, bool)) if schedule.remainder == "pad" else example

    def batches(self) -> Batches:
        """Returns this host's batches by number; opens the data if no variant of this pipeline has done so."""
        examples = self.examples()
        return Batches(examples, self._schedule(examples.num_examples), self.whole_batch_transforms)

    def _feed(self, batches: Batches, start: int) -> Iterator[Any]:
        """Yields the batches from number `start` on."""
        for batch in batches.starting_at(start):
            yield self._placed(batch, batches.schedule)

    def _placed(self, batch: Any, schedule: BatchSchedule) -> Any:
        return batch if self.sharding is None else to_global(batch, self.sharding, schedule)

    def _order_state(self, num_examples: int) -> dict[str, Any]:
        """Settings that decide the order of the examples, for the saved state."""
        seed = self.seed if self.shuffle else None
        return {"pipeline": str(self), "num_examples": num_examples, "shuffle": self.shuffle, "seed": seed}
