"""A run directory that was moved or removed while it is in use is not made again by whoever writes in it."""

from __future__ import annotations

import pathlib

import pytest

from kauldron_core import kd, rundir
from kauldron_core.ckpts import pointers
from kauldron_core.errors import RunFailed


@pytest.fixture
def run(tmp_path: pathlib.Path):
    """A run that another place has by now, while its lock is held."""
    run = rundir.RunDir.create(tmp_path / "run", {})
    run.trial("0000").create("{}")
    with run.lock():
        run.path.rename(tmp_path / "moved")
        yield run


def _save(trial: rundir.TrialDir) -> None:
    with pytest.raises(RunFailed) as caught:
        kd.ckpts.Checkpointer(workdir=trial).save({}, step=1)
    assert caught.value.__cause__ is not None
    raise caught.value.__cause__


def _point(trial: rundir.TrialDir) -> None:
    keeper = kd.ckpts.Checkpointer(workdir=trial)
    with pytest.raises(RunFailed) as caught:
        keeper.point(pointers.Row(keeper.directory / "ckpt_1", 0, 1), {}, step=1)
    assert caught.value.__cause__ is not None
    raise caught.value.__cause__


@pytest.mark.parametrize(
    "write",
    [
        lambda trial: rundir.write_status(trial, "running"),
        lambda trial: rundir.EventWriter(trial.events),
        lambda trial: rundir.write_eval_result(trial, "test", 1, {}),
        lambda trial: rundir.write_pending(trial, "test", rundir.Pending()),
        lambda trial: trial.create("{}"),
        lambda trial: trial.run().pack("abc").write({}),
        lambda trial: trial.run().write_results([]),
        lambda trial: trial.run().write_sweep({}),
        _save,
        _point,
    ],
    ids=["status", "events", "evaluation", "pending", "trial", "pack", "results", "sweep", "checkpoint", "pointer"],
)
def test_no_writer_makes_a_run_again_that_is_gone(run: rundir.RunDir, write):
    """F54: ghost folders with checkpoints and results where the run had been."""
    with pytest.raises(FileNotFoundError):
        write(run.trial("0000"))
    assert not run.path.exists()


def test_who_has_given_a_run_back_may_make_another_one_there(tmp_path: pathlib.Path):
    run = rundir.RunDir.create(tmp_path / "run", {})
    with run.lock():
        run.path.rename(tmp_path / "moved")
    assert rundir.RunDir.create(run.path, {}).exists()
