"""SIGTERM and Ctrl-C save the running step; a kill loses nothing that was on disk."""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import jax
import numpy as np
import pytest

from kauldron_core import kd, rundir
from kauldron_core.train import Done, Evaluated
from kauldron_core.train.loop.interrupts import StopRequest, catching_signals
from pipelines.report.live import going_on
from tests.kauldron_core import experiments
from tests.kauldron_core.train.test_resume import with_everything


def _signalling_points(number: signal.Signals, *, at_batch: int, **fields: Any) -> Any:
    """Returns a pipeline that sends us a signal when its batch `at_batch` is read, counted from 1."""
    seen = []

    def send(batch: Any) -> Any:
        seen.append(1)
        # Only under a handler of ours: it would end the test run otherwise.
        if len(seen) == at_batch and signal.getsignal(number) is not signal.SIG_DFL:
            signal.raise_signal(number)
        return batch

    return experiments.points(batch_transforms=(send,), **fields)


def test_sigterm_saves_at_the_end_of_the_running_step(tmp_path: pathlib.Path) -> None:
    ds = _signalling_points(signal.SIGTERM, at_batch=6, shuffle=True)
    trainer = experiments.trainer(tmp_path, train_ds=ds, num_train_steps=1_000)
    done = list(trainer.iter_train())[-1]
    assert (done.status, done.reason) == ("preempted", "stopped by SIGTERM")
    assert kd.ckpts.latest_step(tmp_path / "checkpoints") == done.step
    assert 5 <= done.step <= 6


@pytest.mark.parametrize("at_batch", [1, 3])
def test_sigterm_ends_an_evaluation_within_one_batch(tmp_path: pathlib.Path, at_batch: int) -> None:
    """R08: sigterm ends an evaluation within one batch."""
    ds = _signalling_points(signal.SIGTERM, at_batch=at_batch, batch_size=4)
    evals = {"test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(4, skip_first=True), ds=ds)}
    events = list(experiments.trainer(tmp_path, evals=evals).iter_train())
    assert events[-1] == Done(step=4, status="preempted", reason="stopped by SIGTERM")
    assert not experiments.of_kind(events, Evaluated)

    evals = {"test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(4, skip_first=True))}
    events = list(experiments.trainer(tmp_path, evals=evals).iter_train())
    assert [event.step for event in experiments.of_kind(events, Evaluated)] == [4, 8, 12]


def test_ctrl_c_saves_and_is_passed_on(tmp_path: pathlib.Path) -> None:
    ds = _signalling_points(signal.SIGINT, at_batch=6)
    with pytest.raises(KeyboardInterrupt):
        experiments.trainer(tmp_path, train_ds=ds, num_train_steps=1_000).train()
    assert kd.ckpts.latest_step(tmp_path / "checkpoints") in (5, 6)
    done = rundir.read_events(tmp_path / "events")[-1]
    assert (done["kind"], done["status"]) == ("done", "preempted")


@pytest.mark.parametrize("deciding", ["train", "often"])
def test_training_ends_where_a_record_says_so(tmp_path: pathlib.Path, deciding: str) -> None:
    evals = {
        "last": kd.evals.Evaluator(run=kd.evals.Final()),
        "often": kd.evals.Evaluator(run=kd.evals.EveryNSteps(4, skip_first=True)),
    }

    def until(event: Any) -> str | None:
        source = event.name if isinstance(event, Evaluated) else event.split
        return "enough" if (source, event.step) == (deciding, 8) else None

    *events, done = experiments.trainer(tmp_path, evals=evals, num_train_steps=20).iter_train(until=until)
    assert done == Done(step=8, status="stopped", reason="enough")
    ran = [(event.name, event.step) for event in experiments.of_kind(events, Evaluated)]
    assert sorted(ran) == [("last", 8), ("often", 4), ("often", 8)]
    assert kd.ckpts.latest_step(tmp_path / "checkpoints") == 8
    # As if it had been killed after its last checkpoint: nothing is made twice.
    again = list(experiments.trainer(tmp_path, evals=evals, num_train_steps=20).iter_train(until=until))
    assert again == [done]


def test_a_second_signal_acts_as_it_would_without_us() -> None:
    def handler(number: int, frame: Any) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with catching_signals(StopRequest()) as request:
            signal.raise_signal(signal.SIGTERM)
            assert request
            assert request.signal is signal.SIGTERM
            with pytest.raises(InterruptedError):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGHUP])
def test_signals_that_mean_the_same_are_taken_unless_somebody_has_them(number: signal.Signals) -> None:
    """F24: under `nohup` SIGHUP is ignored, and stays so."""
    with catching_signals(StopRequest()) as request:
        signal.raise_signal(number)
        assert request.signal is number
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with catching_signals(StopRequest()) as request:
            signal.raise_signal(number)
            assert not request
    finally:
        signal.signal(number, before)


_CHILD = """
import sys, time
from tests.kauldron_core import experiments
def slow(batch):
    time.sleep(0.01)
    return batch
ds = experiments.points(shuffle=True, batch_transforms=(slow,))
experiments.trainer(sys.argv[1], train_ds=ds, num_train_steps=60, log_metrics_every=7).train()
"""


def _start(workdir: pathlib.Path) -> subprocess.Popen[bytes]:
    root = pathlib.Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen([sys.executable, "-c", _CHILD, str(workdir)], cwd=root, env=environment)


def _wait_for(child: subprocess.Popen[bytes], workdir: pathlib.Path, step: int) -> None:
    deadline = time.monotonic() + 90
    while (kd.ckpts.latest_step(workdir / "checkpoints") or 0) < step and child.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.process
@pytest.mark.parametrize("kill_after", [4, 32])
def test_a_killed_process_resumes_to_the_same_bits(tmp_path: pathlib.Path, kill_after: int) -> None:
    child = _start(tmp_path)
    _wait_for(child, tmp_path, kill_after)
    child.send_signal(signal.SIGKILL)
    assert child.wait(20) == -signal.SIGKILL
    ds = experiments.points(shuffle=True)
    resumed = experiments.trainer(tmp_path, train_ds=ds, num_train_steps=60, log_metrics_every=7).train()
    whole = experiments.trainer(train_ds=ds, num_train_steps=60, log_metrics_every=7).train()
    for left, right in zip(jax.tree.leaves(resumed), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(left, right)
    steps = [event["step"] for event in rundir.read_events(tmp_path / "events") if event["kind"] == "metrics"]
    assert steps == [1, *range(7, 60, 7), 60]


def test_a_resume_says_what_it_left_aside(tmp_path: pathlib.Path) -> None:
    """F25: a checkpoint that was cut is no place to go on from, and the event of the resume names it."""
    experiments.trainer(tmp_path, num_train_steps=8).train()
    newest = kd.ckpts.latest_step(tmp_path / "checkpoints")
    (tmp_path / "checkpoints" / "ckpt_9").mkdir()
    experiments.trainer(tmp_path, num_train_steps=12).train()
    (event,) = _resumes(tmp_path)
    assert (event["step"], event["left_aside"]) == (newest, ["ckpt_9 was not complete"])
    assert going_on(event) == f"goes on from step {newest}; ckpt_9 was not complete and is set aside"


def test_a_resume_says_which_checkpoint_was_damaged(tmp_path: pathlib.Path) -> None:
    """F25: it is set aside like one that was cut."""
    experiments.trainer(tmp_path, num_train_steps=8).train()
    before, newest = kd.ckpts.all_steps(tmp_path / "checkpoints")[-2:]
    (tmp_path / "checkpoints" / f"ckpt_{newest}" / "state" / "manifest.ocdbt").unlink()
    experiments.trainer(tmp_path, num_train_steps=12).train()
    (event,) = _resumes(tmp_path)
    assert (event["step"], event["left_aside"]) == (before, [f"ckpt_{newest} was damaged"])


def test_a_start_says_what_was_cut_before_there_was_a_checkpoint(tmp_path: pathlib.Path) -> None:
    """F25: nothing to go on from is no reason to be silent about what lies there."""
    experiments.trainer(tmp_path, num_train_steps=2).train()
    for step in kd.ckpts.all_steps(tmp_path / "checkpoints"):
        shutil.rmtree(tmp_path / "checkpoints" / f"ckpt_{step}")
        (tmp_path / "checkpoints" / f"ckpt_{step}").mkdir()
    experiments.trainer(tmp_path, num_train_steps=4).train()
    (event,) = _resumes(tmp_path)
    assert going_on(event).startswith("goes on from the beginning, there was no checkpoint; ckpt_")


def _resumes(folder: pathlib.Path) -> list[dict[str, object]]:
    return [one for one in rundir.EventFollower(folder / "events").poll() if one["kind"] == rundir.RESUMED_FROM]


_RANDOMLY_KILLED = """
import sys, time
from tests.kauldron_core import experiments
from tests.kauldron_core.train.test_resume import with_everything
def slow(batch):
    time.sleep(0.02)
    return batch
with_everything(sys.argv[1], num_train_steps=40, batch_transforms=(slow,)).train()
"""


@pytest.mark.soak
@pytest.mark.process
def test_any_number_of_kills_at_random_moments_change_no_bit(tmp_path: pathlib.Path) -> None:
    generator = random.Random(int(os.environ.get("SEED", "0")))
    kills = int(os.environ.get("KILLS", "20"))
    root = pathlib.Path(__file__).parents[3]
    whole = with_everything(tmp_path / "whole", num_train_steps=40).train()
    for number in range(kills):
        workdir = tmp_path / str(number)
        status, num_killed = None, 0
        while status != 0:
            command = [sys.executable, "-c", _RANDOMLY_KILLED, str(workdir)]
            child = subprocess.Popen(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
            try:
                # The start takes most of the time; after a few kills one may go through.
                status = child.wait(generator.uniform(3, 9) if num_killed < 3 else 110)
            except subprocess.TimeoutExpired:
                child.kill()
                status, num_killed = child.wait(20), num_killed + 1
            assert status in (0, -signal.SIGKILL)
        state = with_everything(workdir, num_train_steps=40).train()
        for left, right in zip(jax.tree.leaves(state), jax.tree.leaves(whole), strict=True):
            np.testing.assert_array_equal(left, right)
        steps = [event["step"] for event in rundir.read_events(workdir / "events") if event["kind"] == "metrics"]
        assert steps == sorted(set(steps)) and steps[-1] == 40
