"""Checkpoints that outlived the training for the sake of evaluators, removed once these are done."""

from __future__ import annotations

import dataclasses
import os

from evaluators import trial as trial_lib
from kauldron_core import konfig, rundir


def remove_surplus(trial_dir: str | os.PathLike[str]) -> None:
    """Removes the checkpoints that a trial whose training has ended keeps beyond what its checkpointer says.

    A trainer removes them with the next save, of which there is none after the last. What an evaluator still waits for
    stays.
    """
    trial = rundir.TrialDir(os.path.abspath(trial_dir))
    node = trial_lib.read_config(trial).copy_and_resolve_references().get("checkpointer")
    limit = None if node is None else node.get("max_to_keep")
    if limit is None or len(rundir.committed_steps(trial.checkpoints)) <= limit:
        return  # Without JAX, of which a driver has no need otherwise.
    dataclasses.replace(konfig.resolve(node), workdir=trial).remove_surplus()
    _remove_unused(trial)


def _remove_unused(trial: rundir.TrialDir) -> None:
    """Removes the checkpoints of the trial's pack to which no trial points any more, but for the newest."""
    from kauldron_core import ckpts  # JAX

    run = trial.run()
    packs = {rundir.pack_of(trial.checkpoints, step) for step in rundir.committed_steps(trial.checkpoints)} - {None}
    if run is None or not packs:
        return
    used = {
        rundir.pack_of(one.checkpoints, step)
        for one in run.trials()
        for step in rundir.committed_steps(one.checkpoints)
    }
    for folder in {os.path.dirname(os.path.dirname(str(pack))) for pack in packs}:
        keeper = ckpts.Checkpointer(workdir=folder)
        places = {step: os.path.normpath(ckpts.step_path(keeper.directory, step)) for step in keeper.all_steps[:-1]}
        keeper.remove(step for step, place in places.items() if place not in used)
