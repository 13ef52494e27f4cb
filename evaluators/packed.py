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
    """

    def __init__(self, folders: Sequence[TrialDir], open_trial: Callable[[TrialDir], Any]):
        self._folders = folders
        self._open_trial = open_trial
        self._cfgs = [trial_lib.read_config(folder) for folder in folders]
        self._inherited: dict[str, Any] = {}

    def evaluate(self, name: str, step: int) -> list[Any]:
        """Returns the results of evaluator `name` on the checkpoints of all trials at `step`.

        Raises:
          Exception: Whatever one of them raises; the caller then looks at them one by one.
        """
        from kauldron_core.packs import evaluation  # JAX, which who opens a pack needs, and the driver does not.

        evaluators = _Evaluators(name, self._folders, self._open_trial)
        if name not in self._inherited:
            self._inherited[name] = evaluation.inherited(self._cfgs, name)
        states = self._restore(step, evaluators[0])
        return evaluation.evaluate(evaluators, states, *self._inherited[name])

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


class _Evaluators(Sequence[Any]):
    """The evaluators of the trials by one name. Mostly that of the first one is all that is looked at."""

    def __init__(self, name: str, folders: Sequence[TrialDir], open_trial: Callable[[TrialDir], Any]):
        self._name = name
        self._folders = folders
        self._open_trial = open_trial

    def __len__(self) -> int:
        return len(self._folders)

    def __getitem__(self, index: Any) -> Any:
        return self._open_trial(self._folders[index]).evaluator(self._name)
