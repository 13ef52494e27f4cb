"""Reads the results of a sweep back from its run directory, the only truth there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import evaluators
from kauldron_core import rundir
from ray_cluster.results import Results, TrialResult
from ray_cluster.spec import SEED_PATH, Plan, PlannedTrial

_FAILED = ("failed", rundir.DAMAGED)


def collect(plan: Plan, run: rundir.RunDir, **facts: Any) -> Results:
    """Returns the state of all trials of a plan.

    Args:
      plan: Whose trials to read.
      run: Its run directory.
      **facts: Further fields of `Results` (`phases_s`, `sidecar_errors`).
    """
    sweep = run.readable_sweep
    directions, rows = rundir.Directions.read(sweep.get("directions")), list[TrialResult]()
    for trial in plan.trials:
        records = rundir.read_eval_results(run.trial(trial.name))
        rows.append(_read_trial(run.trial(trial.name), trial, records))
        for (name, _), record in records.items():
            directions = directions.with_record(name, record)
    return Results(
        run_dir=str(run.path),
        rows=tuple(rows),
        ranking=rundir.Ranking.read(sweep.get("ranking")),
        directions=directions,
        pending_evaluations=pending_evaluations(plan, run),
        group_path=SEED_PATH if plan.sweep.seeds > 1 else None,
        **facts,
    )


def pending_evaluations(plan: Plan, run: rundir.RunDir) -> tuple[tuple[str, str, int], ...]:
    """Returns the `(trial, evaluator, step)` that are due in trials that have ended."""
    served = {name for pool in plan.pools for name in pool.evaluators}
    ended = [trial for trial in plan.trials if run.trial(trial.name).status() in rundir.TERMINAL]
    return tuple(
        (trial.name, evaluator, step)
        for trial in ended
        for evaluator, step in evaluators.due(run.trial(trial.name), finished=True)
        if evaluator in served
    )


def write_table(results: Results, run: rundir.RunDir) -> None:
    """Writes `results.parquet`: one row a trial, one column an override (`cfg.PATH`) and a metric."""
    run.write_results([row.as_columns() for row in results.rows])


def _read_trial(
    folder: rundir.TrialDir, trial: PlannedTrial, records: Mapping[tuple[str, int], rundir.Record]
) -> TrialResult:
    status = rundir.read_status(folder)
    values, step, evaluated = _last_values(rundir.read_events(folder.events))
    failed = [(name, at, record) for (name, at), record in records.items() if record.get("status") in _FAILED]
    done = {key: record for key, record in records.items() if record.get("status") == "done"}
    for (name, at), record in done.items():  # In order of steps, so that the last one stays.
        if at >= evaluated.get(name, 0):  # An older checkpoint may have been looked at again since.
            values.update({f"{name}/{metric}": value for metric, value in (record.get("values") or {}).items()})
    return TrialResult(
        name=trial.name,
        index=trial.index,
        overrides=trial.overrides,
        status=status["status"],
        step=step,
        error=status.get("error"),
        reason=status.get("reason"),
        values=values,
        num_evaluations=len(done),
        failed_evaluations=tuple((name, at, str(record.get("error"))) for name, at, record in failed),
    )


def _last_values(events: Iterable[rundir.Event]) -> tuple[dict[str, float], int, dict[str, int]]:
    """Returns the last values by metric, the last step, and the last step of each split."""
    values: dict[str, float] = {}
    steps: dict[str, int] = {}
    for event in events:
        source, found = rundir.measured(event)
        if found:
            steps[source] = event["step"]
            values.update({f"{source}/{name}": value for name, value in found.items()})
    return values, max(steps.values(), default=0), steps
