"""Passing the state of one trial on to another, whose point changes: what population based training does."""

from __future__ import annotations

import os
import shutil
from typing import Any

import evaluators
from kauldron_core import konfig, rundir
from kauldron_core.errors import RunFailed
from kauldron_core.konfig.overrides.places import find_place
from ray_cluster.searches.spaces import Point


def pass_on(donor: rundir.TrialDir, trial: rundir.TrialDir, *, step: int, point: Point) -> None:
    """Gives a trial the checkpoint of another one and a changed point; it goes on from there.

    Its later checkpoints and their evaluations go: they belong to a past that is no longer its own. The change stands
    in its events (`inherited`) and in its config.

    Args:
      donor: Whose state.
      trial: Whose point; nothing must be training it.
      step: The donor's checkpoint.
      point: The overrides that the trial has from now on.
    """
    before = _values(trial, point)
    for later in evaluators.committed_steps(trial.checkpoints):
        if later >= step:
            _forget(trial, later)
    copy_checkpoint(donor, trial, step)
    config = konfig.with_values(konfig.load(trial.config_path), point)
    rundir.write_atomic(trial.config_path, konfig.to_json(config, indent=1) + "\n")
    after = _values(trial, point)
    changes = {path: [before[path], after[path]] for path in after}
    with rundir.EventWriter(trial.events, writer="scheduler") as events:
        events.append(rundir.INHERITED, step, donor=donor.name, changes=changes)


def copy_checkpoint(donor: rundir.TrialDir, trial: rundir.TrialDir, step: int) -> None:
    """Copies a checkpoint from one trial to another; it is there whole or not at all."""
    rundir.make_folder(trial.checkpoints)
    copy = trial.checkpoints / f".passed-{step}"
    rundir.remove(copy, inside=trial)
    shutil.copytree(donor.checkpoints / f"ckpt_{step}", copy)
    pack = rundir.pack_of(donor.checkpoints, step)
    if pack is not None:
        # Its arrays are those of a pack, where they are until the trial saves for the first time.
        pointer = rundir.read_json(copy / rundir.POINTER_FILE, rundir.formats.POINTER)
        place = os.path.relpath(pack, trial.checkpoints / f"ckpt_{step}")
        rundir.write_json(copy / rundir.POINTER_FILE, {**pointer, "pack": place})
    copy.rename(trial.checkpoints / f"ckpt_{step}")


def begin_from(donor: rundir.TrialDir, trial: rundir.TrialDir) -> None:
    """Puts the newest checkpoint of a trial where another one begins; nothing happens where that one has begun.

    Raises:
      RunFailed: If there is none.
    """
    steps = evaluators.committed_steps(donor.checkpoints)
    if not steps:
        raise RunFailed(f"{donor.path}: has no checkpoint to go on from.")
    if not evaluators.committed_steps(trial.checkpoints):
        copy_checkpoint(donor, trial, steps[-1])


def _values(trial: rundir.TrialDir, point: Point) -> dict[str, Any]:
    """Returns what a trial's config holds at the paths of a point, as JSON can hold it."""
    config = konfig.load(trial.config_path)
    found = {path: find_place(config, path).slot.current for path, _ in point}
    return {path: value if isinstance(value, bool | int | float | str) else str(value) for path, value in found.items()}


def _forget(trial: rundir.TrialDir, step: int) -> None:
    rundir.remove(trial.checkpoints / f"ckpt_{step}", inside=trial)
    for name, at in rundir.list_eval_results(trial):
        if at == step:
            rundir.remove(rundir.result_path(trial, name, at), inside=trial)
