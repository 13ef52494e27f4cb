"""What is due: committed checkpoints times stand-alone evaluators, less what has a record."""

from __future__ import annotations

import os

from evaluators import trial, watcher
from kauldron_core import rundir
from kauldron_core.rundir import TrialDir


def due(trial_dir: str | os.PathLike[str], *, finished: bool) -> list[tuple[str, int]]:
    """Returns the (evaluator name, step) pairs that wait to be evaluated, oldest checkpoint first.

    Args:
      trial_dir: The trial's folder.
      finished: Whether its training has ended; the last checkpoint is then due for every stand-alone evaluator.
    """
    folder = TrialDir(trial_dir)
    steps = watcher.committed_steps(folder.checkpoints)
    if not steps:
        return []
    recorded = rundir.list_eval_results(folder)
    strategies = trial.standalone_strategies(folder)
    last = steps[-1:] if finished else []
    wanted = {
        (name, step)
        for name, strategy in strategies.items()
        for step in (*_due(folder, name, strategy, steps, finished), *last)
    }
    order = {name: position for position, name in enumerate(strategies)}
    return sorted(wanted - recorded, key=lambda pair: (pair[1], order[pair[0]]))


def _due(folder: TrialDir, name: str, strategy: trial.Strategy, steps: list[int], finished: bool) -> list[int]:
    counted = _with_removed(folder, steps) if getattr(strategy, "counts_removed", False) else steps
    found = sorted(set(strategy.due_steps(counted, finished)) & set(steps))
    min_interval_s = getattr(strategy, "min_interval_s", 0.0)
    return _spaced(folder, name, found, min_interval_s) if min_interval_s else found


def _with_removed(folder: TrialDir, steps: list[int]) -> list[int]:
    """Returns the steps of all checkpoints so far. Counting those that are left would shift as they are removed."""
    interval = trial.save_interval(folder)
    return sorted({*steps, *range(interval, steps[-1], interval)}) if interval else steps


def _spaced(folder: TrialDir, name: str, steps: list[int], min_interval_s: float) -> list[int]:
    """Returns those of `steps` that were saved long enough after the last one that is evaluated or will be."""
    records = {step: record for (other, step), record in rundir.read_eval_results(folder).items() if other == name}
    skipped = {step for step, record in records.items() if record.get("status") == "skipped"}
    evaluated = records.keys() - skipped
    times_s = {step: (records[step].get("saved_ms") or 0) / 1000 for step in evaluated}
    times_s |= {step: watcher.saved_at_s(folder.checkpoints, step) for step in steps if step not in skipped}
    chosen, last_s = [], float("-inf")
    for step, time_s in sorted(times_s.items()):
        if step in evaluated or time_s - last_s >= min_interval_s:
            last_s = max(last_s, time_s)
            chosen.append(step)
    return [step for step in chosen if step in steps]
