"""Following a run: each checkpoint as it lands, until the last one has its result."""

from __future__ import annotations

import pathlib
import shutil
import threading

import pytest

import evaluators
from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError, RunFailed
from tests.evaluators import tiny


def _hide(trial: rundir.TrialDir, hidden: pathlib.Path) -> None:
    """Makes a finished trial look as it did before its second checkpoint."""
    hidden.mkdir()
    for step in tiny.STEPS[1:]:
        shutil.move(trial.checkpoints / f"ckpt_{step}", hidden / f"ckpt_{step}")
    shutil.move(trial.events, hidden / "events")


def test_it_ends_once_the_last_checkpoint_has_a_result(trial: rundir.TrialDir, tmp_path: pathlib.Path) -> None:
    """E12: it ends once the last checkpoint has a result."""
    hidden = tmp_path / "hidden"
    _hide(trial, hidden)
    left = list(tiny.STEPS[1:])

    def go_on(record: rundir.Record) -> None:
        """Training makes the next checkpoint when the one before is evaluated, and ends after the last one."""
        if left:
            shutil.move(hidden / f"ckpt_{left[0]}", trial.checkpoints / f"ckpt_{left.pop(0)}")
        if not left and not trial.events.exists():
            shutil.move(hidden / "events", trial.events)

    records = evaluators.follow_run(trial, poll_s=0.05, on_record=go_on)
    assert [(record["step"], record["status"]) for record in records] == [(step, "done") for step in tiny.STEPS]
    assert evaluators.follow_run(trial) == []


def test_it_ends_after_a_stated_wait_with_the_reason(trial: rundir.TrialDir, tmp_path: pathlib.Path) -> None:
    """E12: it ends after a stated wait with the reason."""
    _hide(trial, tmp_path / "hidden")
    with pytest.raises(RunFailed, match=r"no new checkpoint for 0\.2 s, and training has not ended: trial\."):
        evaluators.follow_run(trial, poll_s=0.05, patience_s=0.2)
    assert list(rundir.read_eval_results(trial)) == [("test", 10)]


def test_it_waits_for_training_in_another_thread(trial: rundir.TrialDir, tmp_path: pathlib.Path) -> None:
    hidden = tmp_path / "hidden"
    _hide(trial, hidden)
    for step in tiny.STEPS[1:]:
        shutil.move(hidden / f"ckpt_{step}", trial.checkpoints / f"ckpt_{step}")
    timer = threading.Timer(0.5, lambda: rundir.write_status(trial, "done"))
    timer.start()
    records = evaluators.follow_run(trial, poll_s=0.05, patience_s=60, order="newest")
    timer.join()
    assert [record["step"] for record in records] == tiny.STEPS[::-1]


def test_the_latest_only_and_the_others_are_on_record(trial: rundir.TrialDir) -> None:
    (record,) = evaluators.follow_run(trial, order="latest")
    assert (record["step"], record["status"]) == (40, "done")
    statuses = {step: found["status"] for (_, step), found in rundir.read_eval_results(trial).items()}
    assert statuses == {10: "skipped", 20: "skipped", 30: "skipped", 40: "done"}


def test_a_run_without_stand_alone_evaluators_cannot_be_followed(trial: rundir.TrialDir) -> None:
    with pytest.raises(ConfigError, match=r"unknown stand-alone evaluator 'tset'\. Did you mean 'test'"):
        evaluators.follow_run(trial, names=["tset"])
    with pytest.raises(ConfigError, match=r"--order: unknown order 'new'"):
        evaluators.follow_run(trial, order="new")  # pyright: ignore[reportArgumentType]
    konfig.save(tiny.config(inside=tiny.evaluator(tiny.node("evals.Final"))), trial.config_path)
    with pytest.raises(ConfigError, match="has no stand-alone evaluator"):
        evaluators.follow_run(trial)
