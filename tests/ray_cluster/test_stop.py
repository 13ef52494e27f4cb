"""Asking a running sweep to stop: first one trial of it, then all."""

import pytest

import ray_cluster
from kauldron_core import rundir
from ray_cluster.driver import control
from tests.ray_cluster import tiny

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_session", "no_leaks")]


class Stopper:
    """A sidecar that asks one trial to stop when it has a checkpoint, and the run when the next one has."""

    def start(self, run_dir):
        self._run = run_dir

    def poll(self):
        if self._has_saved("0001"):
            control.request_trial_stop(self._run, "0001", reason="kdr stop by a test")
        if self._has_saved("0002"):
            control.request_stop(self._run, reason="kdr stop by a test")

    def close(self, results):
        self.results = results

    def _has_saved(self, trial):
        return (self._run.trial(trial).checkpoints / f"ckpt_{tiny.SAVE_EVERY}").exists()


def test_a_stopped_trial_has_ended_and_a_run_that_was_stopped_after_a_failure_goes_on(run_dir):
    """U12: a stopped trial has ended and a run that was stopped after a failure goes on."""
    mistaken = tiny.config()
    mistaken.trainstep = tiny.node("train.TrainStep", microbatches=3)
    slow = [tiny.trial(index, slow_s=0.15) for index in (1, 2)]
    plan = tiny.plan(run_dir, tiny.planned(0, mistaken), *slow, tiny.trial(3), max_concurrent=1, pools=())
    stopper = Stopper()
    with pytest.raises(SystemExit) as ended:
        ray_cluster.run(plan, sidecars=[stopper])
    assert ended.value.code == 143
    assert [row.status for row in stopper.results.rows] == ["failed", "stopped", "preempted", "queued"]
    assert "no multiple of 3" in str(stopper.results.rows[0].error)
    assert 0 < stopper.results.rows[1].step < tiny.NUM_STEPS
    assert stopper.results.rows[1].reason == "kdr stop by a test"

    results = ray_cluster.run(plan)
    assert [row.status for row in results.rows] == ["failed", "stopped", "done", "done"]
    events = rundir.read_events(rundir.RunDir(run_dir).trial("0002").events)
    steps = [event["step"] for event in events if event["kind"] == "metrics"]
    assert steps == sorted(set(steps))
