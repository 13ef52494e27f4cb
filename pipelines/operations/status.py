"""`kdr status RUN`: how a run stands, from any terminal and at any time. Reads the run directory and nothing else."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from kauldron_core import rundir
from kauldron_core.rundir import TRAINING_LOSS, Ranking
from pipelines.cli.run import DONE, run
from pipelines.operations.finding import driver_of, find_run, is_driven, resume_command, status_of
from pipelines.report import LiveReport, make_console, make_table, trial_columns, trial_row
from pipelines.report.progress import duration, remaining_s
from pipelines.report.state import SweepState, TrialState
from pipelines.terminal import echo_json

EPILOG = """\b
Examples:
  kdr status runs/demo
  kdr status demo --follow
  kdr status demo --json
"""


@click.command("status", epilog=EPILOG, context_settings={"max_content_width": 120})
@click.argument("path", metavar="RUN")
@click.option("--follow", is_flag=True, help="Go on showing it until its driver ends.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def command(path: str, follow: bool, as_json: bool) -> int:
    """Show how a run stands: trials, best so far, errors, time left.

    RUN is a run directory, or its name under runs/. Works beside a sweep, after it, and without Ray.
    """
    run_dir = find_run(path)
    if follow and not as_json:
        _follow(run_dir)
    state = SweepState(run_dir)
    state.poll()
    driven = is_driven(run_dir)
    for trial in state.trials.values():
        trial.status = status_of(trial.status, is_driven=driven)
    if as_json:
        echo_json(_as_json(run_dir, state), indent=2)
    else:
        _print(run_dir, state)
    return DONE


def trials_table(trials: Sequence[TrialState], metrics: Sequence[str], *, width: int) -> Any:
    """Returns the table of trials in the order given."""
    rows = [
        trial_row(one.name, one.status, one.values, metrics, step=one.step, num_evaluations=one.evaluations)
        for one in trials
    ]
    return make_table(trial_columns(metrics), rows, width=width)


def _follow(run_dir: rundir.RunDir) -> None:
    report = LiveReport(make_console())
    report.start(run_dir)
    try:
        while is_driven(run_dir):
            time.sleep(1.0)
            report.poll()
    finally:
        report.close()


def _print(run_dir: rundir.RunDir, state: SweepState) -> None:
    console = make_console()
    ranking = state.ranking()
    metrics = list(dict.fromkeys([ranking.metric if ranking else TRAINING_LOSS, TRAINING_LOSS]))
    ranked = state.ranked(ranking)
    console.print(trials_table(ranked, metrics, width=console.width))
    lines = [
        _fault(state, trial) for trial in ranked if (trial.error or trial.reason) and trial.status != rundir.DAMAGED
    ]
    lines += [f"damaged   {line}" for line in state.damages()]
    lines += _ranked_by(state, ranking)
    lines += [f"run       {run_dir.path}", f"driver    {driver_of(run_dir)}", f"trials    {_counts(state)}"]
    lines += _rest(run_dir, state)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _ranked_by(state: SweepState, ranking: Ranking | None) -> list[str]:
    """Returns what ranks the trials, in words, or why nothing does."""
    if ranking is not None:
        return [f"ranked by {ranking.explained}"]
    return [f"ranked by nothing: {state.unranked}"] if state.unranked else []


def _rest(run_dir: rundir.RunDir, state: SweepState) -> list[str]:
    """Returns how long it still takes, or how to go on where nobody is at work."""
    if is_driven(run_dir):
        left_s = remaining_s(state)
        return [f"left      about {duration(left_s)}"] if left_s is not None else []
    is_unfinished = any(trial.status not in rundir.TERMINAL for trial in state.trials.values())
    return [f"go on     {resume_command(run_dir)}"] if is_unfinished else []


def _counts(state: SweepState) -> str:
    counts = ", ".join(f"{number} {status}" for status, number in state.counts().items())
    planned = len(state.run.readable_sweep.get("trials") or ())
    missing = planned - len(state.trials)
    return f"{counts or 'none yet'}{f', {missing} deleted or not begun' if missing > 0 else ''}"


def _fault(state: SweepState, trial: TrialState) -> str:
    overrides = state.overrides(trial.name) or "no overrides"
    return f"{trial.name} ({overrides}) {trial.status}: {trial.error or trial.reason}"


def _as_json(run_dir: rundir.RunDir, state: SweepState) -> dict[str, Any]:
    ranking = state.ranking()
    ranked = state.ranked(ranking)
    return {
        "run": str(run_dir.path),
        "is_driven": is_driven(run_dir),
        "counts": state.counts(),
        "metric": ranking.metric if ranking else None,
        "mode": ranking.mode if ranking else None,
        "ranked_by": ranking.reason if ranking else None,
        "remaining_s": remaining_s(state),
        "damaged": state.damages(),
        "trials": [
            {
                "name": trial.name,
                "status": trial.status,
                "step": trial.step,
                "error": trial.error or None,
                "reason": trial.reason or None,
                "evaluations": trial.evaluations,
                "values": trial.values,
            }
            for trial in ranked
        ],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr status` and returns its exit status."""
    return run(command, argv, program="kdr status")


if __name__ == "__main__":
    sys.exit(main())
