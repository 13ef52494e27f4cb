"""Evaluations of a run that exists, on evaluator actors of a real Ray: whole, in shares, killed, and followed."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import evaluators
from kauldron_core import kd, konfig, rundir
from kauldron_core.errors import ConfigError, RunFailed
from ray_cluster.evaluations import eval_jobs
from tests.ray_cluster import tiny
from tests.ray_cluster.conftest import EVALUATOR, actor_processes

ROOT = pathlib.Path(__file__).parents[2]
TWO = {"num_actors": 2, "resources": {"CPU": 0.5}, "trust": ("tests",)}


@pytest.fixture(scope="module")
def trained(root: pathlib.Path) -> rundir.RunDir:
    """A run with two trained trials and no evaluations. The evaluator is slow, so that a test can act meanwhile."""
    konfig.trust("tests")
    run = rundir.RunDir.create(root / "trained")
    for name, cfg in (("0000", tiny.config()), ("0001", tiny.config(seed=1))):
        cfg.evals.test.ds.transforms = [tiny.node("tests.ray_cluster.tiny:Slow", seconds=0.02)]
        trial = run.trial(name).create(konfig.to_json(cfg))
        kd.load_trial(trial).train()
        rundir.write_status(trial, "done")
    return run


@pytest.fixture
def run(trained: rundir.RunDir, run_dir: pathlib.Path) -> rundir.RunDir:
    shutil.copytree(trained.path, run_dir)
    return rundir.RunDir(run_dir)


def keys(records: list[rundir.Record]) -> list[tuple[str, int, str]]:
    return [(record["trial"], record["step"], record["status"]) for record in records]


ALL = [(name, step, "done") for name in ("0000", "0001") for step in tiny.STEPS]


def left_over(run: rundir.RunDir) -> list[pathlib.Path]:
    """Returns what a job may not leave behind: claims, and half-written files."""
    found = [path for trial in run.trials() for path in trial.evals.rglob("*") if ".tmp" in path.name]
    return found + [path for trial in run.trials() for path in trial.evals.glob("*/.leases/*")]


@pytest.mark.cluster
@pytest.mark.usefixtures("ray_session", "no_leaks")
class TestOnActors:
    def test_a_killed_actor_is_made_anew_and_each_checkpoint_has_one_result(self, run: rundir.RunDir) -> None:
        """F44, F58: nothing in RUN/code runs when actors start; no programs are kept in or beside the run."""
        canary = run.path.parent / "canary"
        for name in ("sitecustomize", "usercustomize", "jax"):
            file = rundir.make_folder(run.code) / f"{name}.py"
            file.write_text(f"open({str(canary)!r}, 'a').write({name!r})")
        job = eval_jobs.EvalJob(run_dir=str(run.path), **TWO)
        told: list[rundir.Record] = []

        def tell(record: rundir.Record) -> None:
            told.append(record)
            if len(told) == 2:
                os.kill(actor_processes(EVALUATOR)[0].pid, signal.SIGKILL)

        records = eval_jobs.evaluate(evaluators.plan_run(run, step="all"), job, on_record=tell)
        assert keys(records) == ALL
        assert sorted(keys(told)) == ALL
        assert len({record["finished_ms"] for record in records}) == len(ALL)
        assert left_over(run) == []
        # What has a record needs no actor, nor Ray.
        again = eval_jobs.evaluate(evaluators.plan_run(run, step="all"), job, address="127.0.0.1:1")
        assert again == records
        assert not canary.exists()
        assert list(run.path.parent.glob("**/*jax_cache*")) == []

    def test_a_run_that_is_moved_ends_the_job_and_goes_on_where_it_is(self, run: rundir.RunDir) -> None:
        """F54: of an evaluation job, which recorded in ghost folders, or failed with what could not be found."""
        moved = run.path.with_name(f"{run.path.name}-moved")

        def move(record: rundir.Record) -> None:
            if run.path.exists():
                run.path.rename(moved)

        job = eval_jobs.EvalJob(run_dir=str(run.path), **TWO)
        with pytest.raises(RunFailed) as caught:
            eval_jobs.evaluate(evaluators.plan_run(run, step="all"), job, on_record=move)
        assert str(caught.value) == f"{run.path}: was moved to {moved} while it ran. To go on: kdr eval {moved}"
        assert not run.path.exists()
        job = eval_jobs.EvalJob(run_dir=str(moved), **TWO)
        assert keys(eval_jobs.evaluate(evaluators.plan_run(rundir.RunDir(moved), step="all"), job)) == ALL

    @pytest.mark.soak
    def test_a_run_is_followed_in_shares_that_give_the_result_of_the_whole(self, run: rundir.RunDir) -> None:
        trial = run.trial("0000")
        hidden = run.path / "hidden"
        hidden.mkdir()
        shutil.move(trial.checkpoints / "ckpt_30", hidden)
        (trial.path / "status.json").unlink()
        events = hidden / "events"
        shutil.move(trial.events, events)
        steps: list[int] = []

        def go_on(record: rundir.Record) -> None:
            steps.append(record["step"])
            if len(steps) == 2:
                shutil.move(hidden / "ckpt_30", trial.checkpoints)
                rundir.write_status(trial, "done")

        job = eval_jobs.EvalJob(run_dir=str(run.path), shards=2, **TWO)
        following = evaluators.Following(trial)
        try:
            eval_jobs.evaluate(following, job, on_record=go_on)
        finally:
            following.close()
        assert sorted(steps) == tiny.STEPS
        assert evaluators.due(trial, finished=True) == []
        assert left_over(run) == []
        split = rundir.read_eval_results(trial)["test", 20]
        (whole,) = evaluators.evaluate_run(trial, step=20, again=True)
        assert whole["num_examples"] == split["num_examples"] == tiny.NUM_TEST
        assert whole["values"]["metrics/accuracy"] == split["values"]["metrics/accuracy"]
        assert whole["values"] == pytest.approx(split["values"], rel=1e-7)
        with pytest.raises(ConfigError, match=r"--actors: asked for 3 times CPU 1\. Room for: 2, on 1 node"):
            again = evaluators.plan_run(run, again=True)
            eval_jobs.evaluate(again, eval_jobs.EvalJob(run_dir=str(run.path), num_actors=3))


@pytest.mark.parametrize(
    ("fields", "expected"), [({"num_actors": 0}, "--actors: must be"), ({"shards": 0}, "--shards")]
)
def test_a_job_that_cannot_be_is_refused(fields: dict[str, int], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        eval_jobs.EvalJob(run_dir="runs/demo", **fields)  # pyright: ignore[reportArgumentType]


@pytest.mark.soak
def test_a_killed_command_is_repeated_and_does_what_is_missing(run: rundir.RunDir, ray_session: str) -> None:
    """`kdr eval --actors`, killed when the first result stands, on the Ray of this session."""
    words = ["--step=all", "--actors=1", f"--address={ray_session}", "--trust=tests", "--no-tracking"]
    command = [sys.executable, "-m", "pipelines.evaluate", str(run.path), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    timer = threading.Timer(100, first.kill)
    timer.start()
    assert first.stdout is not None
    assert "0000  test at step 10" in first.stdout.readline()
    first.kill()
    first.communicate()
    timer.cancel()
    before = {name: rundir.read_eval_results(run.trial(name)) for name in ("0000", "0001")}
    deadline = time.monotonic() + 30
    while actor_processes(EVALUATOR) and time.monotonic() < deadline:
        time.sleep(0.1)

    job = eval_jobs.EvalJob(run_dir=str(run.path), **TWO)
    assert keys(eval_jobs.evaluate(evaluators.plan_run(run, step="all"), job)) == ALL
    for name, records in before.items():
        after = rundir.read_eval_results(run.trial(name))
        assert {key: after[key] for key in records} == records, "a finished evaluation was repeated"
    assert left_over(run) == []

    too_many = eval_jobs.EvalJob(run_dir=str(run.path), shards=9, **TWO)
    with pytest.raises(ConfigError, match=r"--shards: evals\.test has 5 batches, and 9 shares were asked for"):
        eval_jobs.evaluate(evaluators.plan_run(run, again=True), too_many)
    assert not list(run.path.glob("trials/*/evals/test/replaced")), "a mistake is not recorded"
