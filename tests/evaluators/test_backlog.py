"""Checkpoints wait for a live evaluator, up to a limit; the trainer removes the others."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Any

import jax.numpy as jnp
import pytest

import evaluators
from kauldron_core import ckpts, konfig, rundir
from tests.evaluators import tiny

ROOT = pathlib.Path(__file__).parents[2]


def _trial(folder: pathlib.Path, *, max_to_keep: int | None = 1, **nodes: konfig.ConfigDict) -> rundir.TrialDir:
    cfg = tiny.config(**nodes)
    cfg.checkpointer.max_to_keep = max_to_keep
    return rundir.TrialDir(folder).create(konfig.to_json(cfg))


def _every(**fields: Any) -> konfig.ConfigDict:
    return tiny.evaluator(tiny.node("evals.StandaloneEveryCheckpoint", **fields))


def _save(trial: rundir.TrialDir, *steps: int, max_to_keep: int | None = 1) -> list[int]:
    """Saves as a trainer does, and returns which checkpoints are there then."""
    checkpointer = ckpts.Checkpointer(workdir=trial, max_to_keep=max_to_keep)
    for step in steps:
        checkpointer.save({"w": jnp.ones(2)}, step=step)
        checkpointer.wait()
        checkpointer.finished()
    checkpointer.close()
    return checkpointer.all_steps


def _done(trial: rundir.TrialDir, step: int) -> None:
    rundir.write_eval_result(trial, "test", step, {"status": "done", "values": {}})


def test_what_is_due_stays_until_it_has_a_record(tmp_path: pathlib.Path) -> None:
    trial = _trial(tmp_path / "trial")
    backlog = evaluators.Backlog(trial)
    assert backlog.look(finished=False) == []
    assert _save(trial, 10, 20, 30) == [10, 20, 30]
    assert backlog.look(finished=False) == [("test", 10), ("test", 20), ("test", 30)]
    _done(trial, 20)
    assert _save(trial, 40) == [10, 30, 40]
    assert backlog.look(finished=False) == [("test", 10), ("test", 30), ("test", 40)]
    backlog.close()
    backlog.close()
    assert _save(trial, 50) == [50]


def test_an_evaluator_of_the_last_checkpoint_keeps_no_other(tmp_path: pathlib.Path) -> None:
    trial = _trial(tmp_path / "trial", last=tiny.evaluator(tiny.node("evals.StandaloneLastCheckpoint")))
    backlog = evaluators.Backlog(trial)
    backlog.look(finished=False)
    assert _save(trial, 10, 20) == [10, 20], "it has not said yet that it needs neither"
    assert backlog.look(finished=False) == []
    assert _save(trial, 30) == [30]
    assert backlog.look(finished=True) == [("last", 30)]
    backlog.close()


def test_beyond_the_limit_the_oldest_is_skipped_on_record(tmp_path: pathlib.Path) -> None:
    trial = _trial(tmp_path / "trial")
    backlog = evaluators.Backlog(trial)
    backlog.look(finished=False)
    steps = list(range(10, 110, 10))
    for step in steps:
        _save(trial, step)
        backlog.look(finished=False)
    kept = steps[-rundir.DEFAULT_MAX_PENDING :]
    assert backlog.look(finished=False) == [("test", step) for step in kept]
    assert _save(trial, 110) == [*kept, 110]
    records = rundir.read_eval_results(trial)
    assert sorted(step for _, step in records) == [10, 20]
    assert {record["status"] for record in records.values()} == {"skipped"}
    assert "max_pending" in records["test", 10]["error"]
    backlog.close()


def test_where_nothing_is_removed_nothing_is_skipped(tmp_path: pathlib.Path) -> None:
    trial = _trial(tmp_path / "trial", max_to_keep=None)
    steps = list(range(10, 110, 10))
    _save(trial, *steps, max_to_keep=None)
    backlog = evaluators.Backlog(trial)
    assert backlog.look(finished=False) == [("test", step) for step in steps]
    assert backlog.look(finished=True) == [("test", step) for step in steps]
    backlog.close()


def _save_on_record(trial: rundir.TrialDir, *steps: int, max_to_keep: int | None = 1) -> list[int]:
    """Saves and tells of it, as a trainer does."""
    left = []
    with rundir.EventWriter(trial.events) as writer:
        for step in steps:
            left = _save(trial, step, max_to_keep=max_to_keep)
            writer.append("checkpoint", step)
    return left


def _reasons(trial: rundir.TrialDir) -> dict[int, str]:
    return {step: record["error"] for (_, step), record in rundir.read_eval_results(trial).items()}


def test_what_was_removed_while_no_evaluator_lived_has_a_record_of_why(tmp_path: pathlib.Path) -> None:
    """F16: four saves, one is kept, nobody evaluates till later: three that were due had no record of any kind."""
    trial = _trial(tmp_path / "trial")
    assert _save_on_record(trial, 10, 20, 30, 40) == [40]
    backlog = evaluators.Backlog(trial)
    assert backlog.look(finished=False) == [("test", 40)]
    assert set(_reasons(trial)) == {10, 20, 30} and all("was removed before" in why for why in _reasons(trial).values())
    backlog.close()
    later = _trial(tmp_path / "later", test=tiny.evaluator(tiny.node("evals.EveryNCheckpoints", n=2)))
    _save_on_record(later, 10, 20, 30, 40, 50)
    assert [(task.name, task.step) for task in evaluators.plan_run(later, step="due").tasks] == [("test", 50)]
    assert set(_reasons(later)) == {20, 40}, "of the others none was due"


def test_checkpoints_removed_under_the_evaluator_each_have_a_record(tmp_path: pathlib.Path) -> None:
    """F55: ten checkpoints were removed by hand; the one at work had a record, and the others were nowhere."""
    trial = _trial(tmp_path / "trial", max_to_keep=None)
    steps = list(range(10, 110, 10))
    _save_on_record(trial, *steps, max_to_keep=None)
    backlog = evaluators.Backlog(trial)
    assert len(backlog.look(finished=True)) == 10
    shutil.rmtree(trial.checkpoints)
    with rundir.Lease.acquire(rundir.work_path(trial, "test", 30)) or pytest.fail("no lease"):
        assert backlog.look(finished=True) == []
        assert set(_reasons(trial)) == set(steps) - {30}, "who is at work on it says what came of it"
    backlog.look(finished=True)
    assert set(_reasons(trial)) == set(steps)
    backlog.close()


def test_the_newest_checkpoint_that_is_set_aside_will_be_made_again(tmp_path: pathlib.Path) -> None:
    """F55: of a damaged checkpoint that training makes again nothing is recorded as removed."""
    trial = _trial(tmp_path / "trial", max_to_keep=None)
    _save_on_record(trial, 10, 20, max_to_keep=None)
    (trial.checkpoints / "ckpt_20").rename(trial.checkpoints / "ckpt_20.damaged-1")
    backlog = evaluators.Backlog(trial)
    assert backlog.look(finished=False) == [("test", 10)]
    assert not rundir.read_eval_results(trial)
    backlog.close()


def test_checkpoints_that_were_kept_for_evaluators_go_when_these_are_done(tmp_path: pathlib.Path) -> None:
    """F16: after the last save nobody removed what had waited; the best one stays, by the evaluator's own result."""
    trial = _trial(tmp_path / "trial")
    cfg = konfig.load(trial.config_path)
    cfg.checkpointer.best_metric, cfg.checkpointer.mode = "test/losses/total", "min"
    konfig.save(cfg, trial.config_path)
    backlog = evaluators.Backlog(trial)
    backlog.look(finished=False)
    assert _save(trial, 10, 20, 30, 40) == [10, 20, 30, 40]
    for step, loss in ((10, 3.0), (20, 1.0), (30, 2.0)):
        rundir.write_eval_result(trial, "test", step, {"status": "done", "values": {"losses/total": loss}})
    backlog.look(finished=False)
    backlog.close()
    evaluators.remove_surplus(trial)
    assert rundir.committed_steps(trial.checkpoints) == [20, 40]


def test_for_an_evaluator_that_blocks_all_are_kept_also_when_it_has_died(tmp_path: pathlib.Path) -> None:
    trial = _trial(tmp_path / "trial", test=_every(when_behind="block", max_pending=2), other=_every(max_pending=2))
    backlog = evaluators.Backlog(trial)
    backlog.look(finished=False)
    steps = list(range(10, 60, 10))
    for step in steps:
        _save(trial, step)
        backlog.look(finished=False)
    assert [step for name, step in backlog.look(finished=False) if name == "test"] == steps
    assert sorted(rundir.read_eval_results(trial)) == [("other", 10), ("other", 20), ("other", 30)]
    backlog.close()
    assert _save(trial, 60) == [*steps, 60], "nobody is alive, and none is lost"
    for step in steps:
        _done(trial, step)
    assert _save(trial, 70) == [60, 70]


def test_the_one_that_is_being_evaluated_is_not_skipped(tmp_path: pathlib.Path) -> None:
    trial = _trial(tmp_path / "trial")
    backlog = evaluators.Backlog(trial)
    backlog.look(finished=False)
    with rundir.Lease.acquire(rundir.work_path(trial, "test", 10)) or pytest.fail("no lease"):
        for step in range(10, 110, 10):
            _save(trial, step)
            backlog.look(finished=False)
        assert sorted(step for _, step in rundir.read_eval_results(trial)) == [20]
        assert backlog.look(finished=False)[0] == ("test", 10)
        assert _save(trial, 110)[:2] == [10, 30]
    backlog.close()


def test_two_that_look_tell_in_turns_and_skip_once(tmp_path: pathlib.Path) -> None:
    trial = _trial(tmp_path / "trial")
    first, second = evaluators.Backlog(trial), evaluators.Backlog(trial)
    first.look(finished=False)
    second.look(finished=False)
    _save(trial, 10, 20)
    assert first.look(finished=False) == second.look(finished=False) == [("test", 10), ("test", 20)]
    assert rundir.read_pending(trial, "test").due == (10, 20)
    second.close()
    assert _save(trial, 30) == [10, 20, 30], "the first still holds the watch"
    first.close()


def test_a_watch_on_the_run_keeps_the_checkpoints_of_trials_that_nobody_has_looked_at(tmp_path: pathlib.Path) -> None:
    run = rundir.RunDir.create(tmp_path / "run")
    trial = _trial(run.trial("0000").path)
    watch = evaluators.RunWatch(run, ["test"])
    assert _save(trial, 10, 20) == [10, 20]
    backlog = evaluators.Backlog(trial, run_watch=watch)
    assert backlog.look(finished=False) == [("test", 10), ("test", 20)]
    _done(trial, 10)
    assert _save(trial, 30) == [20, 30]
    assert not rundir.Lease.is_live(rundir.watch_path(trial, "test")), "one claim is enough"
    backlog.close()
    watch.close()
    assert _save(trial, 40) == [40]


def test_who_sees_to_one_trial_gives_way_to_who_sees_to_the_run(tmp_path: pathlib.Path) -> None:
    run = rundir.RunDir.create(tmp_path / "run")
    trial = _trial(run.trial("0000").path)
    follower = evaluators.Backlog(trial)
    follower.look(finished=False)
    assert rundir.Lease.is_live(rundir.watch_path(trial, "test"))
    watch = evaluators.RunWatch(run, ["test"])
    later = evaluators.Backlog(trial)
    later.look(finished=False)
    second = evaluators.RunWatch(run, ["test"])
    assert watch.holds("test")
    assert not second.holds("test")
    for claim in (follower, later, second, watch):
        claim.close()
    assert rundir.awaited_steps(trial, [10]) == {}


@pytest.mark.process
def test_a_killed_evaluator_keeps_nothing_any_more(tmp_path: pathlib.Path) -> None:
    trial = _trial(tmp_path / "trial")
    program = (
        "import sys, time, evaluators\n"
        "backlog = evaluators.Backlog(sys.argv[1])\n"
        "while True:\n"
        "    print(backlog.look(finished=False), flush=True)\n"
        "    time.sleep(0.05)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(trial.path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "[]\n"
        assert _save(trial, 10, 20) == [10, 20]
        while "20" not in child.stdout.readline():
            pass
        assert _save(trial, 30) == [10, 20, 30]
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert _save(trial, 40) == [40]
