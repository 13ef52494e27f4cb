"""What is due: committed checkpoints times stand-alone evaluators, less what has a record."""

from __future__ import annotations

import os

from evaluators import trial, watcher
from kauldron_core import rundir


def due(trial_dir: str | os.PathLike[str], *, finished: bool) -> list[tuple[str, int]]:
    """Returns the (evaluator name, step) pairs that wait to be evaluated, oldest checkpoint first.

    Args:
      trial_dir: The trial's folder.
      finished: Whether its training has ended; the last checkpoint is then due for every stand-alone evaluator.
    """
    folder = rundir.TrialDir(trial_dir)
    steps = watcher.committed_steps(folder.checkpoints)
    if not steps:
        return []
    recorded = rundir.list_eval_results(folder)
    strategies = trial.standalone_strategies(folder)
    last = steps[-1:] if finished else []
    wanted = {
        (name, step) for name, strategy in strategies.items() for step in (*strategy.due_steps(steps, finished), *last)
    }
    order = {name: position for position, name in enumerate(strategies)}
    return sorted(wanted - recorded, key=lambda pair: (pair[1], order[pair[0]]))
