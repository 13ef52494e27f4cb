"""Trials that two processes train together: the same numbers as one, stopped together, started again together."""

import dataclasses

import numpy as np
import pytest

import ray_cluster
from kauldron_core import kd, rundir
from ray_cluster.driver import control
from tests.ray_cluster import tiny
from tests.ray_cluster.conftest import HOST_WORKER, actor_processes
from tests.ray_cluster.test_faults import Killer

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_session", "no_leaks")]

NUM_STEPS = 30


def _losses(trial):
    events = rundir.read_events(trial.events)
    return [event["values"]["losses/total"] for event in events if event["kind"] == "metrics"]


def test_two_hosts_train_what_one_would_and_start_again_together(run_dir):
    trials = [tiny.trial(0, num_steps=NUM_STEPS, slow_s=0.08), tiny.trial(1, num_steps=NUM_STEPS)]
    plan = tiny.plan(run_dir, *trials, pools=(), hosts=2)
    run = rundir.RunDir(run_dir)
    saved = run.trial("0000").checkpoints / "ckpt_10"

    def second_process():
        found = actor_processes(HOST_WORKER) if saved.exists() else []
        return found[-1].pid if len(found) == 2 else None

    with Killer(second_process) as killer:
        results = ray_cluster.run(plan)
    assert [row.status for row in results.rows] == ["done", "done"]
    status = rundir.read_status(run.trial("0000"))
    assert killer.killed and status["num_failures"] == 1
    assert "the worker process died" in status["last_error"]
    # Both wrote their own logs, the first one alone the events.
    assert (run.trial("0001").logs / "stderr-1.log").exists()
    assert len(rundir.list_segments(run.trial("0001").events)) == 1

    kd.konfig.trust("tests")
    alone = rundir.RunDir.create(run.path.parent / "alone").trial("0001").create(trials[1].config_json)
    list(kd.train.load_trial(alone).iter_train())
    np.testing.assert_allclose(_losses(run.trial("0001")), _losses(alone), rtol=1e-5)
    assert len(_losses(run.trial("0000"))) == len(_losses(alone))


class Stopper:
    """A sidecar that asks the run to stop when its trial has a checkpoint."""

    def start(self, run_dir):
        self._run = run_dir

    def poll(self):
        if (self._run.trial("0000").checkpoints / "ckpt_10").exists():
            control.request_stop(self._run, reason="kdr stop by a test")

    def close(self, results):
        self.results = results


@pytest.mark.soak
def test_two_hosts_stop_at_the_same_step_and_go_on(run_dir):
    plan = tiny.plan(run_dir, tiny.trial(0, num_steps=60, slow_s=0.15), pools=(), hosts=2)
    stopper = Stopper()
    with pytest.raises(SystemExit):
        ray_cluster.run(plan, sidecars=[stopper])
    assert [row.status for row in stopper.results.rows] == ["preempted"]
    assert 10 <= stopper.results.rows[0].step < 60
    results = ray_cluster.run(plan)
    assert results.ok
    assert results.rows[0].step == 60


@pytest.mark.soak
def test_two_hosts_end_at_the_same_step_by_a_rule(run_dir):
    plan = tiny.plan(run_dir, tiny.trial(0), pools=(), hosts=2, stop="train/losses/total<=0.7")
    results = ray_cluster.run(plan)
    assert [(row.status, row.step) for row in results.rows] == [("stopped", 15)]
    # Without the rule it can go on.
    free = dataclasses.replace(plan, sweep=dataclasses.replace(plan.sweep, stop=""), retry_failed=True)
    assert [(row.status, row.step) for row in ray_cluster.run(free).rows] == [("done", tiny.NUM_STEPS)]
