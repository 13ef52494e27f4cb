"""Packs on a real Ray: one worker trains several trials, each of which stays itself."""

import psutil
import pytest

import ray_cluster
from kauldron_core import kd, rundir
from ray_cluster.driver import control
from ray_cluster.workers import pack_records
from tests.ray_cluster import tiny
from tests.ray_cluster.conftest import HOST_WORKER, actor_processes

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_session", "no_leaks")]


class Disturber:
    """A sidecar that kills the worker once there is a checkpoint, and asks a trial to stop, which the next one does."""

    def start(self, run_dir):
        self._run, self.killed = run_dir, []

    def poll(self):
        if not self.killed and (self._run.pack("abc").checkpoints / f"ckpt_{tiny.LONG_STEPS[0]}").exists():
            self.killed = [psutil.Process(one.pid) for one in actor_processes(HOST_WORKER)]
            for process in self.killed:
                process.kill()
            control.request_trial_stop(self._run, "0001", reason="enough of it")

    def close(self, results):
        pass


@pytest.fixture(scope="module")
def sweep(ray_session, root):
    """Three trials in a pack and one alone; the worker is killed, and one trial is asked to stop."""
    trials = [*(tiny.planned(index, tiny.long_config(seed=index)) for index in range(3)), tiny.trial(3)]
    plan = tiny.packed(tiny.plan(root / "packs", *trials, max_concurrent=1), size=3)
    disturber = Disturber()
    return plan, ray_cluster.run(plan, sidecars=[disturber]), disturber


def test_each_trial_of_a_pack_ends_as_itself(sweep):
    plan, results, disturber = sweep
    assert disturber.killed
    assert [row.status for row in results.rows] == ["done", "stopped", "done", "done"]
    assert results.ok
    run = rundir.RunDir(plan.run_dir)
    assert [rundir.read_status(trial).get("pack") for trial in run.trials()] == ["abc", "abc", "abc", None]
    assert rundir.read_status(run.trial("0001"))["reason"] == "enough of it"
    assert rundir.read_status(run.trial("0000"))["num_failures"] == 1
    for name in ("0000", "0002"):
        steps = [event["step"] for event in rundir.read_events(run.trial(name).events) if event["kind"] == "metrics"]
        assert steps == [1, *tiny.LONG_STEPS]
        assert sorted(rundir.read_eval_results(run.trial(name))) == [("test", step) for step in tiny.LONG_STEPS]
    assert (run.pack("abc").logs / "stderr.log").exists()


def test_a_packed_trial_is_loaded_like_any_other(sweep):
    plan, _, _ = sweep
    kd.konfig.trust("tests")
    trainer, state = kd.load_run(rundir.RunDir(plan.run_dir).trial("0002"))
    assert (trainer.seed, int(state.step)) == (2, tiny.LONG_STEPS[-1])


def test_a_pack_that_fails_is_taken_apart(run_dir):
    bad = tiny.config(seed=1)
    bad.optimizer = tiny.node("tests.ray_cluster.tiny:make_nothing")  # It can't be built, which is no fault of others.
    trials = [tiny.trial(0), tiny.planned(1, bad), tiny.trial(2)]
    results = ray_cluster.run(tiny.packed(tiny.plan(run_dir, *trials, pools=(), max_concurrent=1), size=3))
    assert [row.status for row in results.rows] == ["done", "failed", "done"]
    assert "there is no such optimizer" in (results.rows[1].error or "")


def test_what_waits_to_be_read_is_one_record():
    records = []
    for step, name in ((5, "a"), (5, "b"), (10, "a")):
        pack_records.merge(records, {"kind": "members", "step": step, "members": {name: {"step": step}}})
    pack_records.merge(records, {"kind": "done", "step": 10, "status": "done"})
    assert records == [
        {"kind": "members", "step": 10, "members": {"a": {"step": 10}, "b": {"step": 5}}},
        {"kind": "done", "step": 10, "status": "done"},
    ]
