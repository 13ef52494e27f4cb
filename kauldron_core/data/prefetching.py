"""Stored pipelines whose records take time to read: batches are made ahead, in threads or worker processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Self

from kauldron_core.data.random_access import Batches, RandomAccessPipeline
from kauldron_core.data.workers import with_threads, with_workers
from kauldron_core.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrefetchingPipeline(RandomAccessPipeline):
    """Base class of pipelines that read ahead. How many do so changes nothing about the batches or the saved state.

    Attributes:
      num_workers: Worker processes that make batches; 0 for threads of this process. A worker costs seconds to start
        and a copy of what the source holds in memory: worth it where transforms keep a core busy.
      num_threads: Threads that make batches, in each process; 0 reads when asked.
      prefetch_batches: Batches to have ready, in each process.
    """

    num_workers: int = 0
    num_threads: int = 2
    prefetch_batches: int = 4

    def __post_init__(self):
        super().__post_init__()
        for name, least in (("num_workers", 0), ("num_threads", 0), ("prefetch_batches", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{self}: {name} is {value!r}, not an integer of {least} or more.")

    def _feed(self, batches: Batches, start: int) -> Iterator[Any]:
        settings = {"num_threads": self.num_threads, "num_ahead": self.prefetch_batches}
        if self.num_workers:
            feed = with_workers(self._pinned(batches), start, num_workers=self.num_workers, **settings)
        elif self.num_threads:
            feed = with_threads(batches, start, **settings)
        else:
            yield from super()._feed(batches, start)
            return
        try:
            for batch in feed:
                yield self._placed(batch, batches.schedule)
        finally:
            feed.close()  # pyright: ignore[reportAttributeAccessIssue]

    def _pinned(self, batches: Batches) -> Self:
        """Returns this pipeline with the shard spelled out, and without devices: what a worker process can open."""
        schedule = batches.schedule
        return dataclasses.replace(
            self, shard_index=schedule.shard_index, shard_count=schedule.shard_count, sharding=None
        )
