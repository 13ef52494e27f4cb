"""Trials that go wrong and processes that are really killed: no trial is lost, none hurts another."""

import dataclasses
import logging
import os
import signal
import threading
from collections.abc import Callable

import jax
import numpy as np
import pytest

import ray_cluster
from kauldron_core import kd, rundir
from kauldron_core.errors import RunFailed
from tests.ray_cluster import tiny
from tests.ray_cluster.conftest import EVALUATOR, SUPERVISOR, actor_processes

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_session", "no_leaks")]


class Killer:
    """Kills one process with SIGKILL as soon as there is reason to."""

    def __init__(self, find_pid: Callable[[], int | None]):
        self._find_pid = find_pid
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.killed: int | None = None

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()

    def _watch(self):
        while self.killed is None and not self._is_over.wait(0.05):
            pid = self._find_pid()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self.killed = pid


def _pid_once(is_time: Callable[[], bool], name: str) -> int | None:
    found = actor_processes(name) if is_time() else []
    return found[0].pid if found else None


def _state(run: rundir.RunDir, name: str):
    kd.konfig.trust("tests")
    _, state = kd.load_run(run.trial(name), step=tiny.NUM_STEPS)
    return jax.tree.map(np.asarray, state.params)


def test_a_killed_worker_and_a_killed_evaluator_cost_nothing(run_dir):
    """S06: Both trials are the same; the worker of one is killed after its first checkpoint, and the evaluator too."""
    run = rundir.RunDir(run_dir)
    plan = tiny.plan(run.path, tiny.trial(0, seed=7, slow_s=0.1), tiny.trial(1, seed=7, slow_s=0.1))

    def worker_after_a_checkpoint():
        is_saved = (run.trial("0000").checkpoints / f"ckpt_{tiny.SAVE_EVERY}").exists()
        return rundir.read_status(run.trial("0000")).get("worker", {}).get("pid") if is_saved else None

    def evaluator_after_its_first_result():
        return _pid_once(lambda: any(map(rundir.list_eval_results, run.trials())), EVALUATOR)

    with Killer(worker_after_a_checkpoint) as worker, Killer(evaluator_after_its_first_result) as evaluator:
        results = ray_cluster.run(plan)
    assert worker.killed and evaluator.killed
    assert results.ok, results
    assert [row.num_evaluations for row in results.rows] == [len(tiny.STEPS)] * 2
    statuses = [rundir.read_status(run.trial(name)) for name in ("0000", "0001")]
    assert statuses[0]["num_failures"] == 1 and "num_failures" not in statuses[1]
    assert statuses[0]["worker"]["pid"] != worker.killed
    attempts = {segment.attempt for segment in rundir.list_segments(run.trial("0000").events)}
    assert attempts == {1, 2}
    jax.tree.map(np.testing.assert_array_equal, _state(run, "0000"), _state(run, "0001"))


@pytest.mark.soak
def test_a_killed_supervisor_is_replaced(run_dir):
    run = rundir.RunDir(run_dir)
    plan = tiny.plan(run.path, tiny.trial(0, slow_s=0.1), pools=())

    def supervisor_after_a_checkpoint():
        return _pid_once((run.trial("0000").checkpoints / f"ckpt_{tiny.SAVE_EVERY}").exists, SUPERVISOR)

    with Killer(supervisor_after_a_checkpoint) as killer:
        results = ray_cluster.run(plan)
    assert killer.killed
    assert [row.status for row in results.rows] == ["done"]
    steps = [event["step"] for event in rundir.read_events(run.trial("0000").events) if event["kind"] == "metrics"]
    assert steps == sorted(set(steps))


def test_failing_and_diverging_trials_hurt_no_other(run_dir, caplog):
    """S02, S08: failing and diverging trials hurt no other."""
    caplog.set_level(logging.WARNING)
    run = rundir.RunDir(run_dir)
    plan = tiny.plan(
        run.path,
        tiny.trial(0, loader=tiny.load_nothing),
        tiny.trial(1, loader=tiny.load_nan),
        tiny.trial(2),
        max_failures=2,
    )
    results = ray_cluster.run(plan)
    assert [row.status for row in results.rows] == ["failed", "diverged", "done"]
    assert not results.ok and results.rows[1].is_ok
    failed = rundir.read_status(run.trial("0000"))
    assert failed["error"].startswith("OSError: the disk with the data is not mounted")
    assert failed["num_failures"] == 2
    assert "xent" in rundir.read_status(run.trial("0001"))["reason"]
    # Shown when it happened, with what tells the trial from the others, and once.
    shown = [record.getMessage() for record in caplog.records if "not mounted" in record.getMessage()]
    assert len(shown) == 1 and shown[0].startswith("trial 0000 (")
    assert "Traceback" in (run.trial("0000").logs / "stderr.log").read_text()


@pytest.mark.parametrize(
    ("variable", "fault"),
    [
        ("JAX_PLATFORMS", "RunFailed: node .* JAX can't start on cpu"),
        # A node that lacks a package of ours.
        pytest.param("PYTHONPATH", "a worker can't be made: ModuleNotFoundError: .*rundir", marks=pytest.mark.soak),
    ],
    ids=["platform", "code"],
)
def test_workers_that_cannot_start_stop_the_sweep_and_not_trial_after_trial(variable, fault, run_dir, tmp_path):
    """Three trials fail at their start for the same reason; the others are not even tried."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['kauldron_core.rundir'] = None")
    trials = [tiny.trial(index) for index in range(6)]
    plan = dataclasses.replace(tiny.plan(run_dir, *trials, max_failures=0), env={variable: str(tmp_path)})
    with pytest.raises(RunFailed, match=f"its workers can't start: {fault}"):
        ray_cluster.run(plan)
    statuses = [rundir.RunDir(run_dir).trial(trial.name).status() for trial in trials]
    assert 3 <= statuses.count("failed") < len(trials)
    assert set(statuses) <= {"failed", "preempted", "queued"}


def test_a_trial_that_hangs_and_a_disk_that_is_full_or_can_not_be_written(run_dir, tmp_path):
    hanging, full = tiny.config(seed=0), tiny.config(seed=0)
    after = 8 * (tiny.SAVE_EVERY + 3)
    hanging.train_ds.transforms = [
        tiny.node("tests.ray_cluster.tiny:HangOnce", marker=str(tmp_path / "a"), after=after)
    ]
    full.checkpointer = tiny.node(
        "tests.ray_cluster.tiny:FullDisk", save_interval_steps=tiny.SAVE_EVERY, marker=str(tmp_path / "b")
    )
    trials = [tiny.planned(index, config) for index, config in enumerate([hanging, full, tiny.config(seed=0)])]
    plan = tiny.plan(run_dir, *trials, pools=(), hang_timeout_s=12)
    run = rundir.RunDir(run_dir)
    # A file where the folder of checkpoints should be.
    run.trial("0002").create(trials[2].config_json).checkpoints.write_text("")

    results = ray_cluster.run(plan)
    assert [row.status for row in results.rows] == ["done", "done", "failed"]
    hung, full_disk = (rundir.read_status(run.trial(name)) for name in ("0000", "0001"))
    assert "hung: no sign of life for 12 s" in hung["last_error"]
    assert "No space left on device" in full_disk["last_error"]
    assert str(run.trial("0002").checkpoints) in str(results.rows[2].error)
    # Resumed from their checkpoints, and bit for bit what the others came to.
    first, second = (jax.tree.leaves(_state(run, name)) for name in ("0000", "0001"))
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def test_a_disk_that_takes_no_result_ends_evaluation_and_leaves_what_is_due(run_dir):
    """F26: evaluators were started again and again, three times for each checkpoint."""
    config = tiny.config()
    config.evals["test"].ds.loader = tiny.load_test_and_fill_disk
    results = ray_cluster.run(tiny.plan(run_dir, tiny.planned(0, config), env={"FULL_DISK": "1"}))
    assert [row.status for row in results.rows] == ["done"]
    assert results.pending_evaluations == tuple(("0000", "test", step) for step in tiny.STEPS)
    (error,) = results.evaluator_errors
    assert "File too large" in error
