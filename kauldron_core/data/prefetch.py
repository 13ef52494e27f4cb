"""Batches read ahead by threads or worker processes, with Grain."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kauldron_core.data.random_access import Batches, RandomAccessPipeline

_PARENT_CHECK_S = 1.0


class NumberedBatches:
    """The batches from number `start` on, as a Grain source.

    Batches, not records, are what Grain distributes: a batch is then a function of its number whichever thread or
    process makes it, and the iterator's state is one number.
    """

    def __init__(self, pipeline: RandomAccessPipeline, start: int):
        self._pipeline = pipeline
        self._start = start
        num_batches = pipeline.batches().schedule.num_batches
        self._length = sys.maxsize if num_batches is None else max(num_batches - start, 0)
        self._batches: Batches | None = pipeline.batches()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if self._batches is None:
            self._batches = self._pipeline.batches()
        return self._batches[self._start + index]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._pipeline}, start={self._start})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None}


def read_ahead(
    pipeline: RandomAccessPipeline, start: int, *, num_workers: int, num_threads: int, num_batches: int
) -> Iterator[Any]:
    """Returns an iterator over the batches from number `start` on. Its `close` ends the threads and processes.

    Args:
      pipeline: Whose batches; its shard must be given explicitly, for a worker knows nothing of other JAX processes.
      start: Number of the first batch.
      num_workers: Worker processes; 0 reads in threads of this process.
      num_threads: Threads that make batches, in each process.
      num_batches: Batches to read ahead, in each process.
    """
    # Grain takes 3 s to import; only who uses it should wait.
    import grain
    from grain import experimental

    dataset = grain.MapDataset.source(NumberedBatches(pipeline, start)).to_iter_dataset(
        grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=num_batches if num_threads else 0)
    )
    if num_workers:
        # Grain would hand over arrays in shared memory, of which a container has 64 MB by default, and which a killed
        # process leaves behind. Through a pipe it is about as fast.
        dataset = experimental.WithOptionsIterDataset(dataset, experimental.DatasetOptions(min_shm_size=sys.maxsize))
        _let_grain_read_its_flags()
        # Grain spawns its workers, so no state of JAX is forked.
        options = grain.MultiprocessingOptions(num_workers=num_workers, per_worker_buffer_size=num_batches)
        dataset = dataset.mp_prefetch(options, worker_init_fn=_prepare_worker)
    return iter(dataset)


def _let_grain_read_its_flags() -> None:
    # Grain's workers read absl flags, which fails in a program that does not parse its command line with absl.
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


def _prepare_worker(worker_index: int, worker_count: int) -> None:
    """Sets up a worker process: it leaves accelerators alone, and ends when its parent does."""
    del worker_index, worker_count
    import jax

    jax.config.update("jax_platforms", "cpu")
    # Control-C reaches the whole process group; the parent decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    # A parent that was killed ends nothing itself.
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_S)
    os._exit(1)
