"""How long a sweep still takes, judged by the speed of its steps so far."""

from __future__ import annotations

from collections.abc import Iterable

from kauldron_core import rundir
from pipelines.report.state import SweepState, TrialState


def remaining_s(state: SweepState) -> float | None:
    """Returns the seconds that the unfinished trials need, None while nothing tells or none is running.

    Every step is taken to cost what steps have cost so far, and as many trials run at a time as run now. Starting a
    trial, compiling and the last evaluations are not counted.
    """
    step_s = _seconds_a_step(state.trials.values())
    unfinished = [trial for trial in state.trials.values() if trial.status not in rundir.TERMINAL]
    totals = [state.num_steps(trial.name) for trial in unfinished]
    if not unfinished:
        return 0.0
    num_running = sum(trial.status == "running" for trial in unfinished)
    if step_s is None or not num_running or any(total is None for total in totals):
        return None
    left = sum(max(0, (total or 0) - trial.step) for total, trial in zip(totals, unfinished, strict=True))
    return left * step_s / num_running


def duration(seconds: float) -> str:
    """Returns `45 s`, `12 min` or `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _seconds_a_step(trials: Iterable[TrialState]) -> float | None:
    spans = [trial.span for trial in trials if trial.span is not None]
    steps = sum(last[0] - first[0] for first, last in spans)
    return sum(last[1] - first[1] for first, last in spans) / 1000 / steps if steps > 0 else None
