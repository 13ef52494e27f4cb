"""What ranks the trials of a sweep that is about to start, and which end of each metric is the good one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from kauldron_core.rundir import Directions, Ranking
from ray_cluster.spec import Sweep
from ray_cluster.workers.stopping import StopRule

_logger = logging.getLogger(__name__)


def directions_of(trainers: Iterable[Any]) -> Directions:
    """Returns what is better of each metric of the experiments; nothing of one on which they differ."""
    from kauldron_core.train import metric_directions  # JAX, which whoever has trainers has imported

    said = [metric_directions(trainer).known for trainer in trainers]
    found: dict[str, set[rundir.Better]] = {}
    for one in said:
        for name, better in one.items():
            found.setdefault(name, set()).add(better)
    return Directions({name: next(iter(betters)) for name, betters in found.items() if len(betters) == 1})


def choose(spec: Sweep, run: rundir.RunDir, trainers: Sequence[Any], directions: Directions) -> Ranking:
    """Returns what ranks the trials: what is asked for, else what the run has kept, else what the rule says.

    Args:
      spec: The run spec.
      run: The run directory, which need not exist yet.
      trainers: The experiments.
      directions: What is better of each metric.

    Raises:
      ConfigError: If nothing says which end of the metric is the good one.
    """
    standing = Ranking.read(run.readable_sweep.get("ranking")) if run.exists() else None
    if spec.metric is None and spec.mode is not None:
        raise ConfigError(f"--run.mode={spec.mode}: says which end of --run.metric is the good one. Give that, too.")
    if standing is not None and spec.metric in (None, standing.metric) and spec.mode in (None, standing.mode):
        return standing
    keepers = {(keeper.best_metric, keeper.mode) for keeper in (one.checkpointer for one in trainers) if keeper}
    best_metric, best_mode = next(iter(keepers)) if len(keepers) == 1 else (None, None)
    return rundir.choose_ranking(
        directions,
        metric=spec.metric,
        mode=spec.mode,
        best_metric=best_metric,
        best_mode=best_mode,
        evaluators=_in_all(trainers),
    )


def warn_of_sign(rule: StopRule, directions: Directions) -> None:
    """Says of a stop rule that ends trials where its metric is bad; it is obeyed all the same."""
    better = directions.of(rule.metric)
    if better is not None and (better == "higher") == (rule.sign == "<="):
        _logger.warning("--run.stop=%s: ends a trial where the metric is bad: of it %s is better.", rule, better)


def _in_all(trainers: Sequence[Any]) -> list[str]:
    """Returns the evaluators that run in training and give a loss in every experiment, in the order of the config."""
    from kauldron_core.train import inline_losses

    named = [inline_losses(trainer) for trainer in trainers]
    return [name for name in named[0] if all(name in others for others in named)] if named else []
