"""A whole sweep on a real Ray: trains, evaluates, keeps its workers warm, and goes on where it was left."""

import dataclasses
import shutil
import threading

import pytest

import evaluators
import ray_cluster
from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from tests.ray_cluster import tiny

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_session", "no_leaks")]


class Recorder:
    """A sidecar that remembers what it saw."""

    def __init__(self):
        self.statuses: set[str] = set()
        self.results = None
        self.thread = 0

    def start(self, run_dir):
        self.run = run_dir
        self.thread = threading.get_ident()

    def poll(self):
        self.statuses.update(trial.status() for trial in self.run.trials())

    def close(self, results):
        self.results = results


@pytest.fixture(scope="module")
def sweep(ray_session, root):
    """A finished sweep: its plan, results and sidecar. One trial needs more than the others (case S10).

    Two keep their newest checkpoint only, beside those that wait for the evaluator.
    """
    plan = tiny.plan(
        root / "sweep",
        *(tiny.trial(index, max_to_keep=max_to_keep) for index, max_to_keep in enumerate((None, None, 1))),
        tiny.trial(3, resources={"CPU": 2}, max_to_keep=1),
        metric="test/metrics/accuracy",
        mode="max",
    )
    recorder = Recorder()
    return plan, ray_cluster.run(plan, sidecars=[recorder]), recorder


def test_every_trial_is_trained_and_every_checkpoint_evaluated_once(sweep):
    plan, results, _ = sweep
    assert results.ok
    assert [row.name for row in results.rows] == [trial.name for trial in plan.trials]
    run = rundir.RunDir(plan.run_dir)
    for row in results.rows:
        records = rundir.read_eval_results(run.trial(row.name))
        assert sorted(records) == [("test", step) for step in tiny.STEPS]
        assert {record["num_examples"] for record in records.values()} == {tiny.NUM_TEST}
        assert row.status == run.trial(row.name).status() == "done"
        assert row.values["test/metrics/accuracy"] == records["test", tiny.NUM_STEPS]["values"]["metrics/accuracy"]
        assert row.num_evaluations == len(tiny.STEPS)


def test_checkpoints_that_waited_for_the_evaluator_go_after_it(sweep):
    """F16: with `max_to_keep=1` what had waited for the evaluator till after the last save stayed for ever."""
    plan, _, _ = sweep
    run = rundir.RunDir(plan.run_dir)
    assert [rundir.committed_steps(trial.checkpoints) for trial in run.trials()] == [
        list(tiny.STEPS),
        list(tiny.STEPS),
        [tiny.NUM_STEPS],
        [tiny.NUM_STEPS],
    ]


def test_workers_stay_warm_and_each_trial_has_its_own_logs(sweep):
    plan, _, _ = sweep
    run = rundir.RunDir(plan.run_dir)
    pids = [rundir.read_status(run.trial(trial.name))["worker"]["pid"] for trial in plan.trials]
    # Two processes for the three trials with one CPU, another one for the trial with two.
    assert len(set(pids[:3])) <= 2
    assert pids[3] not in pids[:3]
    assert all((run.trial(trial.name).logs / "stderr.log").exists() for trial in plan.trials)


def test_the_sidecar_saw_it_happen(sweep):
    _, results, recorder = sweep
    assert "running" in recorder.statuses
    assert recorder.results is not None and recorder.results.rows == results.rows
    assert recorder.thread != threading.get_ident()


def test_tables_and_timings_are_on_disk_and_nothing_of_tune(sweep):
    plan, results, _ = sweep
    run = rundir.RunDir(plan.run_dir)
    rows = rundir.read_table(run.path / "results.parquet")
    assert [row["test/metrics/accuracy"] for row in rows] == [
        row.values["test/metrics/accuracy"] for row in results.rows
    ]
    phases = rundir.read_json(run.path / "timings.json")["phases_s"]
    assert set(phases) == {"ray_start", "workers_ready", "training", "last_evaluation", "total"}
    assert phases == dict(results.phases_s)
    assert not (run.path / ".tune").exists()


def test_the_same_again_starts_nothing(sweep):
    plan, results, _ = sweep
    again = ray_cluster.run(plan)
    assert again.rows == results.rows
    assert not again.phases_s


def test_in_another_place_what_is_removed_or_failed_is_made_again_and_nothing_else(sweep, run_dir):
    """S04, U02: in another place what is removed or failed is made again and nothing else."""
    plan, results, _ = sweep
    shutil.copytree(plan.run_dir, run_dir)
    run = rundir.RunDir(run_dir)
    shutil.rmtree(run.trial("0001").path)
    rundir.result_path(run.trial("0000"), "test", 20).unlink()
    failed = run.trial("0002")
    shutil.rmtree(failed.checkpoints / f"ckpt_{tiny.NUM_STEPS}")
    rundir.write_status(failed, "failed", error="OSError: no disk", retry=True)
    before = {name: rundir.read_status(run.trial(name)) for name in ("0000", "0003")}
    again = ray_cluster.run(dataclasses.replace(tiny.plan(run_dir, *plan.trials), retry_failed=True))
    assert again.ok
    assert evaluators.committed_steps(failed.checkpoints)[-1] == tiny.NUM_STEPS
    # Trained in another process at another time, and bit for bit the same.
    assert [row.values["test/losses/total"] for row in again.rows] == [
        row.values["test/losses/total"] for row in results.rows
    ]
    assert {name: rundir.read_status(run.trial(name)) for name in before} == before
    assert evaluators.due(run.trial("0000"), finished=True) == []


def test_impossible_resources_are_refused_before_any_trial(run_dir):
    """U14: impossible resources are refused before any trial."""
    plan = tiny.plan(run_dir, tiny.trial(0), resources={"GPU": 4})
    with pytest.raises(ConfigError, match=r"asked for GPU 4 on one node\. Available: a node with GPU 0"):
        ray_cluster.run(plan)
    assert rundir.RunDir(run_dir).trial("0000").status() == "queued"


def test_a_run_in_use_is_refused(run_dir):
    plan = tiny.plan(run_dir, tiny.trial(0))
    run = rundir.RunDir.create(run_dir)
    with run.lock(), pytest.raises(ConfigError, match="in use by another driver"):
        ray_cluster.run(plan)
