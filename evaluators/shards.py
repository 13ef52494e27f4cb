"""One large evaluation in several shares, whose states merge."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterable
from typing import Any

from kauldron_core.errors import ConfigError
from kauldron_core.rundir import Record

MAX_SHARDS = 1024
"""More shares than this are a slip of the finger; where the data says how many batches it has, those are the limit."""


@dataclasses.dataclass(frozen=True)
class Share:
    """What came of one share. It can be sent to another process.

    Attributes:
      collected: What the evaluator collected; merges with that of the other shares.
      failure: What a record says of the failure, None if there is none.
    """

    collected: Any = None
    failure: Record | None = None


def check_number(count: int) -> None:
    """Raises a `ConfigError` for a number of shares that no evaluation can have."""
    if not 1 <= count <= MAX_SHARDS:
        raise ConfigError(f"--shards: must be at least 1 and at most {MAX_SHARDS}, not {count}.")


def check_shards(evaluator: Any, count: int) -> None:
    """Raises unless an evaluator can go over its data in `count` shares.

    Raises:
      ConfigError: If it can only evaluate as a whole, or a share would be without a batch.
    """
    name = getattr(evaluator, "name", type(evaluator).__name__)
    if not hasattr(evaluator, "collect"):
        raise ConfigError(f"--shards: evals.{name}: {type(evaluator).__name__} can't evaluate a share of its data.")
    batches = getattr(evaluator, "num_data_batches", None)
    if batches is not None and count > batches:
        raise ConfigError(
            f"--shards: evals.{name} has {batches} {'batch' if batches == 1 else 'batches'}, and {count} shares were "
            f"asked for. Give {batches} at most, or a smaller batch_size."
        )


def evaluate_shard(evaluator: Any, state: Any, *, index: int, count: int) -> Any:
    """Returns what an evaluator collects on share `index` of `count`. It can be pickled, and merged with the others.

    Args:
      evaluator: An evaluator that collects (`kd.evals.Evaluator` and ours do).
      state: The state to evaluate.
      index: Which share.
      count: How many there are.

    Raises:
      ConfigError: If it can only evaluate as a whole, or a share would be without a batch.
    """
    check_shards(evaluator, count)
    return evaluator.collect(state, shard_index=index, shard_count=count)


def merge_shards(evaluator: Any, collected: Iterable[Any], *, step: int, seconds: float) -> Any:
    """Returns the result of an evaluation from what all its shares collected. It equals that of the whole."""
    merged = functools.reduce(lambda left, right: left.merge(right), collected)
    return evaluator.result(merged, step=step, seconds=seconds)


def evaluate_in_shards(evaluator: Any, state: Any, count: int) -> Any:
    """Returns the result of `count` shares, evaluated one after the other. It equals that of the whole.

    Raises:
      ConfigError: If it can only evaluate as a whole, or a share would be without a batch.
    """
    started = time.monotonic()
    shards = [evaluate_shard(evaluator, state, index=index, count=count) for index in range(count)]
    return merge_shards(evaluator, shards, step=int(state.step), seconds=time.monotonic() - started)
