"""Going on from the newest checkpoint of another run: whose it is, and whether a new run can begin with it."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING

import evaluators
from kauldron_core import rundir
from kauldron_core.errors import ConfigError, listing
from pipelines.operations import find_trials

if TYPE_CHECKING:
    from kauldron_core.train import Trainer


def find_donor(text: str) -> rundir.TrialDir:
    """Returns the trial that `--start-from` names, by its folder or by that of a run with one trial.

    Raises:
      ConfigError: If there is none, or the run has several.
    """
    trials = find_trials(text)
    if len(trials) > 1:
        folders = listing(str(trial.path) for trial in trials)
        raise ConfigError(f"--start-from={text}: this run has {len(trials)} trials. Say which one: {folders}.")
    return trials[0]


def check_donor(donor: rundir.TrialDir, trial: rundir.TrialDir, trainer: Trainer, *, at: str = "--start-from") -> None:
    """Refuses a checkpoint with which a new trial could not begin, before anything of it is made.

    Args:
      donor: Whose newest checkpoint it is.
      trial: What begins with it; one that has begun goes on from its own.
      trainer: What it is to train.
      at: What named the donor, for errors.

    Raises:
      ConfigError: If nothing would be left to train, or its arrays or its data are others.
    """
    from kauldron_core import ckpts  # JAX

    steps = evaluators.committed_steps(donor.checkpoints)
    if not steps:
        raise ConfigError(f"{at}={donor.path}: has no checkpoint to go on from.")
    if evaluators.committed_steps(trial.checkpoints):
        return
    step, path = steps[-1], ckpts.step_path(donor.checkpoints, steps[-1])
    if trainer.num_train_steps is not None and step >= trainer.num_train_steps:
        weights = f"kauldron_core.ckpts.SimpleCheckpointLoader(workdir={str(donor.path)!r})"
        raise ConfigError(
            f"{at}={donor.path}: its newest checkpoint is that of step {step}, and {trainer.num_train_steps} steps"
            f" leave nothing to train. To go on: --cfg.num_train_steps={2 * step}, or another number above {step}."
            f" To train anew from its weights, without {at}: {shlex.quote(f'--cfg.init_transform={weights}')}"
        )
    try:
        ckpts.check_state(ckpts.read_metadata(path).get("state") or {}, trainer.state_specs, place=str(path))
        with contextlib.closing(iter(trainer.train_ds)) as data:
            data.set_state(ckpts.read_data_state(path))
    except ConfigError as error:
        raise ConfigError(f"{at}={donor.path}: {error}") from error
