"""Pipelines over one store of records that has a length and can be read in any order."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Hashable
from typing import NamedTuple, Self

import numpy as np

from kauldron_core.data.order import InOrder, Order, require_seed
from kauldron_core.data.packing import PackedRecords, packing_step
from kauldron_core.data.random_access import Examples, RandomAccessPipeline
from kauldron_core.data.records import (
    CachedRecords,
    OrderedExamples,
    Records,
    deterministic_prefix,
    filter_prefix,
    surviving_records,
)
from kauldron_core.data.shared import SameObject
from kauldron_core.errors import ConfigError


class _Opened(NamedTuple):
    records: Records
    survivors: np.ndarray | None
    # Transforms that the records have behind them.
    num_applied: int

    @property
    def num_examples(self) -> int:
        return len(self.records) if self.survivors is None else len(self.survivors)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredPipeline(RandomAccessPipeline):
    """Base class of pipelines over one store. A subclass says how it is opened, and by what it is known.

    Attributes:
      is_cached: Whether examples are kept in memory once read, as they are before the first random transform. All
        variants of the pipeline share them; worker processes keep each their own.
    """

    is_cached: bool = False

    def cache(self) -> Self:
        """Returns the same data, each example of which is read and (as far as not random) transformed only once."""
        return dataclasses.replace(self, is_cached=True)

    @abc.abstractmethod
    def _open_records(self) -> Records:
        """Opens the store. Called once for all variants of a pipeline."""

    @abc.abstractmethod
    def _source_key(self) -> Hashable:
        """Key of the opened store: equal keys open the same."""

    def _data_key(self) -> Hashable:
        # Filters and packing decide which records there are, which is found out when the data is opened.
        transforms = self.record_transforms
        packing = packing_step(transforms)
        decisive = filter_prefix(transforms) if packing is None else transforms[: packing + 1]
        if self.is_cached:
            decisive = deterministic_prefix(transforms)
        return self._source_key(), self.is_cached, *map(SameObject, decisive)

    def _open(self) -> _Opened:
        try:
            records = self._open_records()
        except ConfigError as error:
            raise ConfigError(f"{self}: {error}") from None
        transforms, num_applied = self.record_transforms, 0
        survivors = surviving_records(records, transforms)
        packing = packing_step(transforms)
        if packing is not None:
            num_applied = packing + 1
            records, survivors = PackedRecords(records, transforms[:num_applied], survivors), None
        if self.is_cached:
            steps = deterministic_prefix(transforms)[num_applied:]
            # Columns in memory need no copy of themselves.
            if steps or not records.is_columnar:
                records = CachedRecords(records, steps)
            num_applied += len(steps)
        return _Opened(records, survivors, num_applied)

    def examples(self) -> Examples:
        return self._ordered_examples

    @functools.cached_property
    def _ordered_examples(self) -> Examples:
        opened = self._opened.get(self._open)
        return OrderedExamples(
            opened.records,
            self._order(opened),
            transforms=self.record_transforms,
            num_applied=opened.num_applied,
            seed=self.seed,
            survivors=opened.survivors,
        )

    def _order(self, opened: _Opened) -> Order:
        if not self.shuffle or not opened.num_examples:
            return InOrder()
        return opened.records.shuffled(require_seed(self.seed, str(self)), opened.survivors)
