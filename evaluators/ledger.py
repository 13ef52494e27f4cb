"""What is due on a trial, and who keeps it, by what the trial's config says about its evaluators."""

from __future__ import annotations

import functools
import os

from evaluators import trial
from kauldron_core import rundir


def due(trial_dir: str | os.PathLike[str], *, finished: bool) -> list[tuple[str, int]]:
    """Returns the (evaluator name, step) pairs that wait to be evaluated, oldest checkpoint first.

    Args:
      trial_dir: The trial's folder.
      finished: Whether its training has ended; the last checkpoint is then due for every stand-alone evaluator.
    """
    return rundir.due(trial_dir, trial.wanted(trial_dir), finished=finished)


class Backlog(rundir.Backlog):
    """What is due on a trial whose config says which evaluators there are. See `rundir.Backlog`."""

    def __init__(self, trial_dir: str | os.PathLike[str], *, run_watch: rundir.RunWatch | None = None):
        """Claims nothing yet; that comes with the first look.

        Args:
          trial_dir: The trial's folder.
          run_watch: The caller's claim on the whole run. Only what it does not hold is claimed for this trial.
        """
        super().__init__(trial_dir, functools.partial(trial.wanted, trial_dir), run_watch=run_watch)
