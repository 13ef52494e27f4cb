"""The data of a pack: one batch for all its trials, or one for each."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core.data import InMemoryPipeline
from kauldron_core.data.schedule import remainder_mode
from kauldron_core.data.stored import StoredPipeline
from kauldron_core.data.transforms.apply import is_filter, is_packing, is_random
from kauldron_core.packs.planning.sizes import bytes_of, text_of
from kauldron_core.train.step.layout import stacked

BUDGET_BYTES = 2**30
"""Memory for the batches of a pack whose trials read data that is not in memory in different orders."""

_BLOCK_BYTES = 8 * 2**20
_MAX_BLOCK = 64


class PackData(abc.ABC):
    """What the trials of a pack read, step after step."""

    is_shared = False
    """Whether all trials see the same batch; else batches have a first dimension for the row of the pack."""

    @abc.abstractmethod
    def next_batch(self) -> Any:
        """Returns the batch of the next step. Raises StopIteration where the data ends."""

    def take(self, count: int, *, size: int) -> Any:
        """Returns the batches of the next `count` steps, stacked to `size` entries, of which the others are void."""
        return stacked([self.next_batch() for _ in range(count)], size=size)

    @abc.abstractmethod
    def get_state(self) -> list[dict[str, Any]]:
        """Returns the position of each row, or the one that all share, as its trial alone would save it."""

    @abc.abstractmethod
    def set_state(self, states: Sequence[dict[str, Any]]) -> None:
        """Goes on from what `get_state` returned."""

    def keep(self, rows: Sequence[int]) -> None:  # noqa: B027  (what all share has no rows)
        """Rearranges the rows.

        Args:
          rows: For each row the trial that it belongs to, by its index among those that the data was opened for.
        """

    def close(self) -> None:  # noqa: B027  (nothing to end is a valid answer)
        """Ends threads."""


def open_data(pipelines: Sequence[Any]) -> PackData:
    """Returns the data of trials.

    Args:
      pipelines: Pipelines of the trials, which differ in nothing but their seeds.
    """
    first = pipelines[0]
    if len({pipeline.seed for pipeline in pipelines}) == 1 or not depends_on_seed(first):
        return SharedData(iter(first))
    if is_gathered(first):
        return GatheredData(pipelines)
    return StackedData(pipelines)


def depends_on_seed(pipeline: Any) -> bool:
    """Returns whether another seed may give other batches."""
    if not isinstance(pipeline, StoredPipeline):
        return True  # Made of others, perhaps, that are shuffled.
    return pipeline.shuffle or any(map(is_random, pipeline.record_transforms))


def is_gathered(pipeline: Any) -> bool:
    """Returns whether each batch consists of rows of arrays that fit in memory, whatever the seed."""
    if type(pipeline) is not InMemoryPipeline or pipeline.sharding is not None or pipeline.batch_transforms:
        return False
    is_whole = pipeline.shard_count in (None, 1) and jax.process_count() == 1
    is_cut = remainder_mode(pipeline.batch_drop_remainder) == "drop"
    steps = pipeline.record_transforms
    is_plain = not any(is_random(step) or is_filter(step) or is_packing(step) for step in steps)
    is_numeric = all(leaf.dtype.kind in "biufc" for leaf in jax.tree.leaves(pipeline.element_spec))
    return is_whole and is_cut and is_plain and is_numeric


def why_not_multiplied(pipeline: Any) -> str | None:
    """Returns why trials with other seeds can't read this data in one pack, None if they can."""
    if not depends_on_seed(pipeline):
        return None
    if getattr(pipeline, "num_workers", 0):
        return "each trial would need worker processes of its own for its data"
    if not hasattr(pipeline, "with_seed"):
        return "the data follows from it in a way of its own"
    return None


def most_in_budget(pipeline: Any, budget_bytes: int) -> tuple[int | None, str]:
    """Returns how many trials with seeds of their own can be fed from the budget, None for any number; and why."""
    if is_gathered(pipeline):
        return None, ""
    size = bytes_of(pipeline.element_spec)
    most = max(budget_bytes // max(size, 1), 1)
    return most, f"a batch for each trial takes {text_of(size)}, and data_budget_bytes is {text_of(budget_bytes)}"


class SharedData(PackData):
    """One batch for all.

    Args:
      iterator: Where it comes from.
    """

    is_shared = True

    def __init__(self, iterator: Any):
        self._iterator = iterator

    def next_batch(self) -> Any:
        return next(self._iterator)

    def get_state(self) -> list[dict[str, Any]]:
        return [self._iterator.get_state()]

    def set_state(self, states: Sequence[dict[str, Any]]) -> None:
        (state,) = states
        self._iterator.set_state(state)

    def close(self) -> None:
        _close(self._iterator)


class StackedData(PackData):
    """A batch read for each.

    Args:
      pipelines: Those of the trials.
    """

    def __init__(self, pipelines: Sequence[Any]):
        # Threads that read ahead for each of many trials would be too many.
        self._iterators = [iter(_without_threads(pipeline)) for pipeline in pipelines]
        self._rows = list(range(len(pipelines)))

    def next_batch(self) -> Any:
        batches = {index: next(self._iterators[index]) for index in dict.fromkeys(self._rows)}
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(batches[index] for index in self._rows))

    def get_state(self) -> list[dict[str, Any]]:
        return [self._iterators[index].get_state() for index in self._rows]

    def set_state(self, states: Sequence[dict[str, Any]]) -> None:
        for index, state in zip(self._rows, states, strict=True):
            self._iterators[index].set_state(state)

    def keep(self, rows: Sequence[int]) -> None:
        self._rows = list(rows)

    def close(self) -> None:
        for iterator in self._iterators:
            _close(iterator)


class GatheredData(PackData):
    """Rows of arrays that are kept once, on the device: only their numbers differ between trials.

    Args:
      pipelines: Those of the trials.
    """

    def __init__(self, pipelines: Sequence[InMemoryPipeline]):
        first = pipelines[0]
        self._schedule = first.batches().schedule
        self._arrays = jax.device_put(_whole(first, self._schedule.num_examples))
        # The numbers of the rows come in the order in which the rows would.
        loader = functools.partial(_row_numbers, self._schedule.num_examples)
        self._numbers = [dataclasses.replace(each, loader=loader, transforms=()) for each in pipelines]
        self._templates = [iter(each).get_state() for each in self._numbers]
        self._rows = list(range(len(pipelines)))
        self._next = 0
        self._block: np.ndarray = np.empty((0,), np.int32)
        self._block_start = 0

    def next_batch(self) -> Any:
        return _gather(self._arrays, self._indices(1)[0])

    def take(self, count: int, *, size: int) -> Any:
        indices = self._indices(count)
        padding = [(0, size - count), *[(0, 0)] * (indices.ndim - 1)]
        return _gather(self._arrays, np.pad(indices, padding))

    def get_state(self) -> list[dict[str, Any]]:
        return [{**self._templates[index], "next_batch": self._next} for index in self._rows]

    def set_state(self, states: Sequence[dict[str, Any]]) -> None:
        for index, state in zip(self._rows, states, strict=True):
            iter(self._numbers[index]).set_state(state)  # Refuses that of other data.
        self._seek(states[0]["next_batch"])

    def keep(self, rows: Sequence[int]) -> None:
        self._rows = list(rows)
        self._seek(self._next)

    def _seek(self, number: int) -> None:
        self._next, self._block_start = number, number
        self._block = self._block[:0]

    def _indices(self, count: int) -> np.ndarray:
        """Returns the rows of the arrays in the next batches, of shape (count, rows of the pack, batch)."""
        last = self._schedule.num_batches
        if last is not None and self._next + count > last:
            raise StopIteration
        begin = self._next - self._block_start
        if begin + count > len(self._block):
            self._read(count)
            begin = 0
        self._next += count
        return self._block[begin : begin + count]

    def _read(self, count: int) -> None:
        batch_size = self._schedule.host_batch_size
        fitting = _BLOCK_BYTES // (4 * batch_size * len(self._rows))
        ahead = min(_MAX_BLOCK, fitting, self._schedule.num_full_batches_from(self._next))
        positions = self._schedule.positions(self._next, max(count, ahead))
        read = {
            index: self._numbers[index].examples().gather(positions).reshape(-1, batch_size)
            for index in dict.fromkeys(self._rows)
        }
        self._block = np.stack([read[index] for index in self._rows], axis=1)
        self._block_start = self._next


@jax.jit
def _gather(arrays: Any, rows: Any) -> Any:
    return jax.tree.map(lambda array: jnp.take(array, rows, axis=0, mode="clip"), arrays)


def _whole(pipeline: InMemoryPipeline, num_examples: int) -> Any:
    """Returns all examples, transformed, in the order in which they are stored."""
    whole = dataclasses.replace(
        pipeline, batch_size=num_examples, shuffle=False, num_epochs=1, max_batches=None, shard_index=0, shard_count=1
    )
    return next(iter(whole))


@functools.cache
def _row_numbers(num_examples: int) -> np.ndarray:
    return np.arange(num_examples, dtype=np.int32)


def _without_threads(pipeline: Any) -> Any:
    if not hasattr(pipeline, "num_threads"):
        return pipeline
    return dataclasses.replace(pipeline, num_threads=0)


def _close(iterator: Any) -> None:
    if hasattr(iterator, "close"):
        iterator.close()
