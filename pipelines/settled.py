"""A run in which nothing is missing: what came of it, without building a config and without Ray and JAX."""

from __future__ import annotations

from dataclasses import replace

import evaluators
from kauldron_core import rundir
from pipelines import sources
from pipelines.extending import is_larger
from pipelines.operations.finding import is_driven
from pipelines.report import ranking_of
from ray_cluster.driver import collect
from ray_cluster.results import Results
from ray_cluster.spec import Plan, PlannedTrial, Sweep


def results_if_settled(run: rundir.RunDir, spec: Sweep) -> Results | None:
    """Returns how the trials of a run ended; None if one has not, or anything is to be evaluated, or may be.

    Args:
      run: The run directory.
      spec: Its run spec.
    """
    trials = sources.made_trials(run) if spec.search is not None else sources.read_trials(run)
    # What more samples add only the config can tell.
    is_complete = not is_larger(run, spec) if spec.search is None else len(trials) >= spec.num_samples
    if not trials or not is_complete or is_driven(run) or not all(_is_settled(run.trial(one.name)) for one in trials):
        return None
    planned = tuple(
        PlannedTrial(
            name=one.name, index=one.index, fingerprint=one.fingerprint, config_json="", overrides=one.overrides
        )
        for one in trials
    )
    spec = replace(spec, metric=None, mode=None)  # What ranks them is kept in the run.
    return collect.collect(Plan(sweep=spec, run_dir=str(run.path), trials=planned), run)


def ranking_of_settled(results: Results, spec: Sweep) -> rundir.Ranking | None:
    """Returns what ranks the trials of a run in which nothing is missing: what is asked for now, else what it keeps."""
    if spec.metric is not None and spec.metric in results.metric_names:
        return results.ranking_by(spec.metric, spec.mode)
    run = rundir.RunDir(results.run_dir)
    return results.ranking or ranking_of(run, results.metric_names, directions=results.directions)


def _is_settled(trial: rundir.TrialDir) -> bool:
    return trial.exists() and trial.status() in rundir.TERMINAL and not evaluators.due(trial, finished=True)
