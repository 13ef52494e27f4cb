"""Asking a running sweep to stop: first one trial of it, then all."""

import pytest

import ray_cluster
from kauldron_core import rundir
from ray_cluster import control
from tests.ray_cluster import tiny

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_session", "no_leaks")]


class Stopper:
    """A sidecar that asks the first trial to stop when it has a checkpoint, and the run when the second one has."""

    def start(self, run_dir):
        self._run = run_dir

    def poll(self):
        if self._has_saved("0000"):
            control.request_trial_stop(self._run, "0000", reason="kdr stop by a test")
        if self._has_saved("0001"):
            control.request_stop(self._run, reason="kdr stop by a test")

    def close(self, results):
        self.results = results

    def _has_saved(self, trial):
        return (self._run.trial(trial).checkpoints / f"ckpt_{tiny.SAVE_EVERY}").exists()


def test_a_stopped_trial_has_ended_and_a_stopped_run_goes_on(run_dir):
    slow = [tiny.trial(index, slow_s=0.15) for index in (0, 1)]
    plan = tiny.plan(run_dir, *slow, tiny.trial(2), max_concurrent=1, pools=())
    stopper = Stopper()
    with pytest.raises(SystemExit) as ended:
        ray_cluster.run(plan, sidecars=[stopper])
    assert ended.value.code == 143
    assert [row.status for row in stopper.results.rows] == ["stopped", "preempted", "queued"]
    assert 0 < stopper.results.rows[0].step < tiny.NUM_STEPS
    assert stopper.results.rows[0].reason == "kdr stop by a test"

    results = ray_cluster.run(plan)
    assert [row.status for row in results.rows] == ["stopped", "done", "done"]
    assert results.ok
    events = rundir.read_events(rundir.RunDir(run_dir).trial("0001").events)
    steps = [event["step"] for event in events if event["kind"] == "metrics"]
    assert steps == sorted(set(steps))
