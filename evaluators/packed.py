"""The trials of a pack, evaluated together: their checkpoints are rows of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evaluators import trial as trial_lib
from kauldron_core.errors import ConfigError
from kauldron_core.rundir import TrialDir

_WITHOUT_OPTIMIZER = ("step", "params", "collections")


def parts_for(evaluator: Any) -> tuple[str, ...] | None:
    """Returns the parts of a state that an evaluator has to have; None is all of them."""
    return None if getattr(evaluator, "needs_opt_state", True) else _WITHOUT_OPTIMIZER


class OpenPack:
    """Trials whose checkpoints are rows of one checkpoint.

    Args:
      folders: Their folders.
      open_trial: Builds the experiment of one of them, at most once.
      changes: Changes of their configs for this evaluation.
    """

    def __init__(self, folders: Sequence[TrialDir], open_trial: Callable[[TrialDir], Any], changes: trial_lib.Changes):
        self._folders = folders
        self._open_trial = open_trial
        self._cfgs = [trial_lib.read_config(folder, changes) for folder in folders]
        self._inherited: dict[str, Any] = {}

    def evaluate(self, name: str, step: int) -> list[Any]:
        """Returns the results of evaluator `name` on the checkpoints of all trials at `step`.

        Raises:
          Exception: Whatever one of them raises; the caller then looks at them one by one.
        """
        from kauldron_core.packs.running import (
            evaluation,  # JAX, which who opens a pack needs, and the driver does not.
        )

        lead = self._open_trial(self._folders[0]).evaluator(name)
        if name not in self._inherited:
            self._inherited[name] = evaluation.inherited(self._cfgs, name)
        evaluators = [(row, _Late(name, folder, self._open_trial)) for row, folder in enumerate(self._folders)]
        return evaluation.evaluate(lead, evaluators, self._restore(step, lead), *self._inherited[name])

    def _restore(self, step: int, evaluator: Any) -> Any:
        """Returns the states of all trials, with a first dimension for the trial."""
        import jax
        import numpy as np

        from kauldron_core import ckpts
        from kauldron_core.ckpts import pointers

        found = [pointers.find(ckpts.step_path(folder.checkpoints, step)) for folder in self._folders]
        rows = [row for row in found if row is not None]
        if len(rows) < len(found) or len({row.path for row in rows}) > 1:
            raise ConfigError(f"{self._folders[0].path}: at step {step} not all are rows of one checkpoint.")
        experiment = self._open_trial(self._folders[0]).experiment
        template = rows[0].stacked(experiment.state_specs)
        states = ckpts.load(rows[0].path.parent, template, step=step, only=parts_for(evaluator)).state
        places = np.asarray([row.row for row in rows])
        return jax.tree.map(lambda leaf: leaf[places], states)


class _Late:
    """The evaluator of a trial, built only if it has to look at its state by itself."""

    def __init__(self, name: str, folder: TrialDir, open_trial: Callable[[TrialDir], Any]):
        self._name = name
        self._folder = folder
        self._open_trial = open_trial

    def evaluate(self, state: Any, *, stop: Any = None) -> Any:
        return self._open_trial(self._folder).evaluator(self._name).evaluate(state, stop=stop)
