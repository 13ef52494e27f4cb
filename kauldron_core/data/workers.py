"""Batches made ahead, by threads or by worker processes."""

from __future__ import annotations

import collections
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from typing import TYPE_CHECKING, Any

from kauldron_core.konfig.trusting.code_copies import imported_copies

if TYPE_CHECKING:
    from kauldron_core.data.random_access import Batches, RandomAccessPipeline

_PARENT_CHECK_S = 1.0


def with_threads(batches: Batches, start: int, *, num_threads: int, num_ahead: int) -> Iterator[Any]:
    """Yields the batches from number `start` on, made by threads of this process.

    Args:
      batches: The batches by number.
      start: The first.
      num_threads: Threads at work.
      num_ahead: Batches in the making or ready.
    """
    stop = batches.schedule.num_batches
    numbers = iter(itertools.count(start) if stop is None else range(start, stop))
    pool = futures.ThreadPoolExecutor(num_threads, thread_name_prefix="kauldron-data")
    try:
        pending = collections.deque(pool.submit(batches.__getitem__, n) for n in itertools.islice(numbers, num_ahead))
        while pending:
            batch = pending.popleft().result()
            pending.extend(pool.submit(batches.__getitem__, n) for n in itertools.islice(numbers, 1))
            yield batch
    finally:
        pool.shutdown(cancel_futures=True)


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


def with_workers(
    pipeline: RandomAccessPipeline, start: int, *, num_workers: int, num_threads: int, num_ahead: int
) -> Iterator[Any]:
    """Returns an iterator over the batches from number `start` on, made by processes. Its `close` ends them.

    Args:
      pipeline: Whose batches; its shard must be given explicitly, for a worker knows nothing of other JAX processes.
      start: The first.
      num_workers: Worker processes.
      num_threads: Threads at work in each.
      num_ahead: Batches that each has ready.
    """
    # Grain takes 3 s and 250 MB to import; only who has worker processes should pay for it.
    import grain
    from grain import experimental

    threads = grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=num_ahead if num_threads else 0)
    dataset = grain.MapDataset.source(NumberedBatches(pipeline, start)).to_iter_dataset(threads)
    # Grain would hand over arrays in shared memory, of which a container has 64 MB by default, and which a killed
    # process leaves behind. Through a pipe it is about as fast.
    dataset = experimental.WithOptionsIterDataset(dataset, experimental.DatasetOptions(min_shm_size=sys.maxsize))
    _let_grain_read_its_flags()
    _send_code_copies()
    # Grain spawns its workers, so no state of JAX is forked.
    options = grain.MultiprocessingOptions(num_workers=num_workers, per_worker_buffer_size=num_ahead)
    return iter(dataset.mp_prefetch(options, worker_init_fn=_prepare_worker))


def _send_code_copies() -> None:
    """Lets Grain send what a copied config file defines as a whole: a new process can't import it by its name."""
    import cloudpickle  # With which Grain sends a dataset.

    for module in imported_copies():
        cloudpickle.register_pickle_by_value(module)


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
    # These reach the whole process group; the parent decides what becomes of its workers.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    # A parent that was killed ends nothing itself.
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_S)
    os._exit(1)
