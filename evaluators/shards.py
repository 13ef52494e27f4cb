"""One large evaluation in several shares, whose states merge."""

from __future__ import annotations

import functools
import time
from typing import Any

from kauldron_core.errors import ConfigError


def evaluate_shard(evaluator: Any, state: Any, *, index: int, count: int) -> Any:
    """Returns what an evaluator collects on share `index` of `count`. It can be pickled, and merged with the others.

    Args:
      evaluator: An evaluator that collects (`kd.evals.Evaluator` and ours do).
      state: The state to evaluate.
      index: Which share.
      count: How many there are.

    Raises:
      ConfigError: If it can only evaluate as a whole.
    """
    if not hasattr(evaluator, "collect"):
        raise ConfigError(f"--shards: {type(evaluator).__name__} can't evaluate a share of its data.")
    return evaluator.collect(state, shard_index=index, shard_count=count)


def evaluate_in_shards(evaluator: Any, state: Any, count: int) -> Any:
    """Returns the result of `count` shares, evaluated one after the other. It equals that of the whole.

    Raises:
      ConfigError: If it can only evaluate as a whole.
    """
    started = time.monotonic()
    shards = (evaluate_shard(evaluator, state, index=index, count=count) for index in range(count))
    collected = functools.reduce(lambda left, right: left.merge(right), shards)
    return evaluator.result(collected, step=int(state.step), seconds=time.monotonic() - started)
