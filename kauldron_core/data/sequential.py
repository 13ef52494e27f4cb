"""Pipelines whose examples can only be read in the order in which they come."""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kauldron_core.data import trees
from kauldron_core.data.iterator import STATE_VERSION, DataIterator, check_order, check_version
from kauldron_core.data.pipeline import Pipeline
from kauldron_core.data.random_access import to_global, with_padding_mask
from kauldron_core.data.records import filter_prefix
from kauldron_core.data.transforms.apply import RecordOrigin, is_kept, is_packing, transform_batch, transform_record
from kauldron_core.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequentialPipeline(Pipeline):
    """Base class of pipelines over what comes one example after the other. Every host reads all and keeps its share."""

    def __post_init__(self):
        super().__post_init__()
        if any(is_packing(transform) for transform in self.record_transforms):
            raise ConfigError(f"{self} cannot pack what comes one after the other. Pack in the source.")

    @abc.abstractmethod
    def open_epoch(self, epoch: int) -> Iterator[Any]:
        """Returns the examples of an epoch. If it has a `close` method, that is called at the end."""

    @abc.abstractmethod
    def reopen_epoch(self, epoch: int, offset: int, state: Any) -> Iterator[Any]:
        """Returns the examples of an epoch that come after the first `offset`.

        Args:
          epoch: The epoch.
          offset: How many were read.
          state: What `get_state` of the iterator returned at that place, None if it has no such method.
        """

    def _order_state(self) -> dict[str, Any]:
        """Settings that decide the order of the examples, for the saved state."""
        return {}

    def __iter__(self) -> DataIterator:
        return _SequentialIterator(self)

    def __len__(self) -> int:
        raise TypeError(f"{self} has no length: how many examples there are shows only at the end.")

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
    origin: RecordOrigin


class _Stream(Iterator[_Raw]):
    """The examples that filters keep, epoch after epoch, not yet transformed."""

    def __init__(self, pipeline: SequentialPipeline):
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
                self._source = self._pipeline.open_epoch(self._epoch)
            for element in self._source:
                origin = RecordOrigin(self._pipeline.seed, self._epoch, self._offset)
                self._offset += 1
                if is_kept(self._filters, element):
                    self._has_kept = True
                    return _Raw(element, origin)
            self._end_epoch()
        raise StopIteration

    def _end_epoch(self) -> None:
        if not self._has_kept:
            what = "its filters keep nothing" if self._offset else "the source gave nothing"
            hint = " The source must return a new iterable at each call." if self._epoch else ""
            raise ConfigError(f"{self._pipeline}: {what} in epoch {self._epoch}.{hint}")
        self._epoch, self._offset, self._has_kept, self._source = self._epoch + 1, 0, False, None

    def get_position(self) -> dict[str, Any]:
        state = self._source.get_state() if hasattr(self._source, "get_state") else None  # pyright: ignore
        return {"epoch": self._epoch, "offset": self._offset, "source": state}

    def set_position(self, position: dict[str, Any]) -> None:
        self._epoch, self._offset, state = position["epoch"], position["offset"], position["source"]
        self._has_kept = self._offset > 0
        # At the start of an epoch a new iterator is what comes next.
        self._source = self._pipeline.reopen_epoch(self._epoch, self._offset, state) if self._offset else None

    def close(self) -> None:
        if hasattr(self._source, "close"):
            self._source.close()  # pyright: ignore


class _SequentialIterator(DataIterator):
    def __init__(self, pipeline: SequentialPipeline):
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
            "is_done": self._is_done,
            "position": self._stream.get_position(),
            "order": self._order_state(),
        }

    def _order_state(self) -> dict[str, Any]:
        return {"batch_size": self._schedule.batch_size, **self._pipeline._order_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        check_version(state)
        check_order(state["order"], self._order_state())
        self._stream.close()
        self._stream = _Stream(self._pipeline)
        self._stream.set_position(state["position"])
        self._num_batches = state["batches"]
        self._is_done = state["is_done"]

    def close(self) -> None:
        self._is_closed = True
        self._stream.close()
