"""What ranks the trials of a run, for whoever only reads the run.

A run keeps since its beginning what ranks it (`kauldron_core.rundir.choose_ranking` is the rule), so evaluators that
are added later change nothing. A run of an earlier version has kept nothing: the same rule is asked of its first trial.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import evaluators
from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.evaluator_nodes import evaluator_nodes
from kauldron_core.rundir import Directions, Ranking


def sources_of(metric_names: Iterable[str]) -> list[str]:
    """Returns the evaluators that metrics are of, by name."""
    split = [name.split("/") for name in metric_names]
    return sorted({parts[0] for parts in split if len(parts) > 2 and parts[1] in ("metrics", "losses")} - {"train"})


def directions_of_run(run: rundir.RunDir) -> Directions:
    """Returns what is better of each metric, as a run and the records of its evaluations say it."""
    found = Directions.read(run.readable_sweep.get("directions"))
    for trial in run.trials():
        for (name, _), record in rundir.read_eval_results(trial).items():
            found = found.with_record(name, record)
    return found


def ranking_of(
    run: rundir.RunDir,
    metric_names: Collection[str],
    *,
    directions: Directions,
    metric: str | None = None,
    mode: str | None = None,
) -> Ranking | None:
    """Returns what ranks the trials of a run; None if they have no metric at all.

    Args:
      run: The run directory.
      metric_names: Names of all metrics that any trial has.
      directions: What is better of each metric.
      metric: The metric that is asked for now.
      mode: Which end of it is the good one; where unset the metric says it.

    Raises:
      ConfigError: If no trial has the metric that is asked for, or nothing says which end of it is the good one.
    """
    if metric is not None and metric not in metric_names:
        raise ConfigError(unknown_name("metric", metric, sorted(metric_names), at=str(run.path)))
    found = rundir.read_ranking(run.readable_sweep, metric=metric, mode=mode, directions=directions, at="--mode")
    return found if found is not None or not metric_names else _by_its_config(run, metric_names, directions, mode)


def _by_its_config(
    run: rundir.RunDir, metric_names: Collection[str], directions: Directions, mode: str | None
) -> Ranking | None:
    trial = next(iter(run.trials()), None)
    if trial is None:
        return None
    config = konfig.load(trial.config_path)
    keeper = config.get("checkpointer") or {}
    try:
        beside = set(evaluators.standalone_strategies(trial))
    except ConfigError:  # Their strategies are the user's own, and not trusted here.
        beside = set(evaluator_nodes(config))
    inside = [name for name in evaluator_nodes(config) if name not in beside]
    return rundir.choose_ranking(
        directions,
        best_metric=keeper.get("best_metric"),
        best_mode=mode or keeper.get("mode"),
        evaluators=[name for name in inside if f"{name}/losses/total" in metric_names],
    )
