"""`FromIterator`: examples that a user's iterator yields one after the other."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kauldron_core.data import trees
from kauldron_core.data.iterator import STATE_VERSION, DataIterator, check_version
from kauldron_core.data.ordered import filter_prefix
from kauldron_core.data.pipeline import Pipeline
from kauldron_core.data.random_access import to_global, with_padding_mask
from kauldron_core.data.transforms.apply import Origin, is_kept, is_packing, transform_batch, transform_record
from kauldron_core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class FromIterator(Pipeline):
    """Pipeline over examples that can only be read in the order in which they come.

    It resumes where a new iterator can be brought to the saved place: by the iterator itself if it has `get_state`
    and `set_state` (of something JSON can carry), else by reading up to there again if `is_replayable`. Without
    either a saved state is refused. Every host reads all examples and keeps its share.

    Attributes:
      source: Returns a new iterable of examples; called at the start of each epoch.
      is_replayable: Whether `source` gives the same examples whenever it is called.
    """

    source: Callable[[], Iterable[Any]]
    is_replayable: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.shuffle:
            raise ConfigError(f"{self} cannot shuffle what comes one after the other. Shuffle in the source.")
        if any(is_packing(transform) for transform in self.record_transforms):
            raise ConfigError(f"{self} cannot pack what comes one after the other. Pack in the source.")

    def __iter__(self) -> DataIterator:
        return _FromIteratorIterator(self)

    def __len__(self) -> int:
        raise TypeError(f"{self} has no length: how many examples an iterator has shows only at its end.")

    @property
    def element_spec(self) -> Any:
        return self._element_spec

    @functools.cached_property
    def _element_spec(self) -> Any:
        with_all_hosts = dataclasses.replace(self, shard_index=0, shard_count=1, sharding=None)
        iterator = iter(with_all_hosts)
        batch = next(iterator)
        iterator.close()
        return trees.spec_of(batch, self.batch_size or 0)


class _Raw(NamedTuple):
    element: Any
    origin: Origin


class _Stream(Iterator[_Raw]):
    """The examples that filters keep, epoch after epoch, not yet transformed."""

    def __init__(self, pipeline: FromIterator):
        self._pipeline = pipeline
        self._filters = filter_prefix(pipeline.record_transforms)
        self._epoch = 0
        # Examples read in this epoch.
        self._offset = 0
        self._has_kept = False
        self._source: Iterator[Any] | None = None

    def __next__(self) -> _Raw:
        while self._epoch != self._pipeline.num_epochs:
            if self._source is None:
                self._source = iter(self._pipeline.source())
            for element in self._source:
                origin = Origin(self._pipeline.seed, self._epoch, self._offset)
                self._offset += 1
                if is_kept(self._filters, element):
                    self._has_kept = True
                    return _Raw(element, origin)
            self._end_epoch()
        raise StopIteration

    def _end_epoch(self) -> None:
        if not self._has_kept:
            what = "its filters keep nothing" if self._offset else "the source gave nothing"
            raise ConfigError(
                f"{self._pipeline}: {what} in epoch {self._epoch}. `source` must return a new iterable at each call."
            )
        self._epoch, self._offset, self._has_kept, self._source = self._epoch + 1, 0, False, None

    def get_position(self) -> dict[str, Any]:
        state = self._source.get_state() if hasattr(self._source, "get_state") else None  # pyright: ignore
        return {"epoch": self._epoch, "offset": self._offset, "source": state}

    def set_position(self, position: dict[str, Any]) -> None:
        self._epoch, self._offset = position["epoch"], position["offset"]
        self._has_kept = self._offset > 0
        # At the start of an epoch a new iterator is what comes next.
        self._source = self._source_at(position) if self._offset else None

    def _source_at(self, position: dict[str, Any]) -> Iterator[Any]:
        source = iter(self._pipeline.source())
        if position["source"] is not None and hasattr(source, "set_state"):
            source.set_state(position["source"])  # pyright: ignore[reportAttributeAccessIssue]
        elif self._pipeline.is_replayable:
            # Consumes so many examples.
            next(itertools.islice(source, position["offset"], position["offset"]), None)
        else:
            raise ConfigError(
                f"{self._pipeline} cannot be brought to epoch {position['epoch']}, example {position['offset']}: give "
                "the iterator get_state and set_state, or set is_replayable=True if the source repeats itself."
            )
        return source

    def close(self) -> None:
        if hasattr(self._source, "close"):
            self._source.close()  # pyright: ignore


class _FromIteratorIterator(DataIterator):
    def __init__(self, pipeline: FromIterator):
        self._pipeline = pipeline
        # Of the schedule only the shares of the hosts are used: the number of examples is not known.
        self._schedule = pipeline._schedule(sys.maxsize)
        self._stream = _Stream(pipeline)
        self._num_batches = 0
        self._is_done = False
        self._is_closed = False
        self._first: Any = None

    def __next__(self) -> Any:
        if self._is_closed or self._is_done or self._num_batches == self._schedule.max_batches:
            raise StopIteration
        examples = list(itertools.islice(self._stream, self._schedule.batch_size))
        is_partial = len(examples) < self._schedule.batch_size
        self._is_done = is_partial
        if not examples or (is_partial and self._schedule.remainder == "drop"):
            self._check_any(len(examples))
            raise StopIteration
        batch = self._host_batch(examples)
        self._num_batches += 1
        batch = transform_batch(self._pipeline.whole_batch_transforms, batch)
        sharding = self._pipeline.sharding
        return batch if sharding is None else to_global(batch, sharding, self._schedule)

    def _check_any(self, count: int) -> None:
        if not self._num_batches:
            raise ConfigError(
                f"{self._pipeline}: {count} examples do not fill one batch of {self._schedule.batch_size}. Use a "
                "smaller batch_size, more epochs, or batch_drop_remainder='pad'."
            )

    def _host_batch(self, examples: list[_Raw]) -> Any:
        if self._first is None and not self._num_batches:
            self._first = self._transformed(examples[:1])
        own = examples[self._schedule.shard_index :: self._schedule.shard_count]
        batch = self._transformed(own) if own else None
        if self._schedule.remainder != "pad":
            return batch
        size = self._schedule.host_batch_size
        if len(own) < size:
            batch = trees.pad_rows(batch, self._first_example(), size - len(own))
        return with_padding_mask(batch, np.arange(size) < len(own))

    def _first_example(self) -> Any:
        if self._first is None:
            # Resumed after the first batch: the first example is read again.
            stream = _Stream(self._pipeline)
            self._first = self._transformed([next(stream)])
            stream.close()
        return self._first

    def _transformed(self, examples: list[_Raw]) -> Any:
        transforms = self._pipeline.record_transforms
        return trees.stack([transform_record(transforms, *example) for example in examples])

    def get_state(self) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            "batches": self._num_batches,
            "batch_size": self._schedule.batch_size,
            "is_done": self._is_done,
            "position": self._stream.get_position(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        check_version(state)
        if state["batch_size"] != self._schedule.batch_size:
            raise ConfigError(
                f"the data iterator was saved with batch_size={state['batch_size']} and the pipeline has "
                f"batch_size={self._schedule.batch_size}: its next batch cannot be the one that followed."
            )
        self._stream.close()
        self._stream = _Stream(self._pipeline)
        self._stream.set_position(state["position"])
        self._num_batches = state["batches"]
        self._is_done = state["is_done"]

    def close(self) -> None:
        self._is_closed = True
        self._stream.close()
