"""Checkpoints of the trials of a pack are evaluated together, to what they come to one by one."""

import json
import shutil

import pytest

import evaluators
from evaluators import CheckpointEvaluator
from kauldron_core import konfig, packs, rundir, train
from tests.ray_cluster import tiny

STEPS = 4


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three trials that a pack has trained."""
    konfig.trust("tests")
    run = rundir.RunDir.create(tmp_path_factory.mktemp("packed") / "run")
    for seed in range(3):
        run.trial(f"{seed:04d}").create(konfig.to_json(tiny.config(seed=seed, num_steps=STEPS)))
    configs = [train.load_config(trial) for trial in run.trials()]
    packs.train(configs, folder=run.pack("abc").path)
    return run


@pytest.fixture
def run(trained, tmp_path):
    """The same run in another place: pointers are relative."""
    return _copy(trained, tmp_path / "run")


def _copy(run, path):
    shutil.copytree(run.path, path)
    return rundir.RunDir(path)


def _values(run):
    return [rundir.read_eval_results(trial)["test", STEPS]["values"] for trial in run.trials()]


def test_together_is_one_by_one(run, tmp_path, caplog):
    copied = _copy(run, tmp_path / "other")
    together, alone = CheckpointEvaluator(trust=["tests"]), CheckpointEvaluator(trust=["tests"])
    records = together.evaluate_pack(run.trials(), "test", STEPS)
    assert "one by one" not in caplog.text
    assert [record["status"] for record in records] == ["done"] * 3
    assert {record["num_examples"] for record in records} == {tiny.NUM_TEST}
    for trial in copied.trials():
        alone.evaluate(trial, "test", STEPS)
    for one, other in zip(_values(run), _values(copied), strict=True):
        assert one == pytest.approx(other, rel=1e-6)
    first = rundir.read_eval_results(run.trial("0000"))["test", STEPS]
    other = rundir.read_eval_results(copied.trial("0000"))["test", STEPS]
    assert first["fingerprint"] == other["fingerprint"]


def test_what_is_done_or_being_done_is_left_alone(run):
    evaluator = CheckpointEvaluator(trust=["tests"])
    done = {"evaluator": "test", "step": STEPS, "status": "done", "values": {"losses/total": 7.0}}
    rundir.write_eval_result(run.trial("0001"), "test", STEPS, done)
    evaluator.evaluate_pack(run.trials(), "test", STEPS)
    assert _values(run)[1] == {"losses/total": 7.0}
    assert all(values["metrics/accuracy"] > 0 for values in (_values(run)[0], _values(run)[2]))


def test_where_one_can_not_be_read_the_others_are_evaluated_all_the_same(run):
    pointer = run.trial("0001").checkpoints / f"ckpt_{STEPS}" / "pack.json"
    pointer.write_text(json.dumps({**json.loads(pointer.read_text()), "pack": "../nowhere"}))
    records = CheckpointEvaluator(trust=["tests"]).evaluate_pack(run.trials(), "test", STEPS)
    assert [record["status"] for record in records] == ["done", "failed", "done"]


def test_a_job_evaluates_packs_together_under_another_name_too(run, caplog):
    evaluators.evaluate_run(run, step="latest", trust=["tests"])
    told = []
    changed = {"as_name": "few", "overrides": ["evals.test.num_batches=2"], "names": ["test"]}
    found = evaluators.evaluate_run(run, step="latest", on_record=told.append, **changed)
    assert "one by one" not in caplog.text
    assert found == told
    assert [(record["trial"], record["num_examples"]) for record in found] == [(f"{n:04d}", 16) for n in range(3)]
    assert all(len(rundir.read_eval_results(trial)) == 2 for trial in run.trials())


@pytest.mark.cluster
def test_a_job_on_actors_hands_the_trials_of_a_pack_to_one_of_them(run):
    from ray_cluster.driver.ground import Ground
    from ray_cluster.evaluations import (
        eval_driver,
        eval_jobs,  # Ray, which the other tests do without
    )
    from ray_cluster.evaluations.evaluator_actors import Outcome

    job = eval_jobs.EvalJob(run_dir=str(run.path), num_actors=2)
    evaluating = eval_driver._Evaluating(
        evaluators.plan_run(run, step="all"), job, None, Ground(run, lambda loss: None)
    )
    assert evaluating._scan()
    piece = evaluating._next()
    assert piece is not None
    assert [task.trial.name for task in piece.tasks] == ["0000", "0001", "0002"]
    records = CheckpointEvaluator(trust=["tests"]).evaluate_pack([task.trial for task in piece.tasks], "test", STEPS)
    evaluating._take(Outcome(piece, records))
    assert evaluating._next() is None
    assert list(evaluating._records.values()) == [
        {"trial": task.trial.name, **record} for task, record in zip(piece.tasks, records, strict=True)
    ]


@pytest.mark.cluster
def test_what_failed_together_is_tried_one_by_one(run):
    from ray_cluster.driver.ground import Ground
    from ray_cluster.evaluations import eval_driver, eval_jobs
    from ray_cluster.evaluations.evaluator_actors import Outcome

    job = eval_jobs.EvalJob(run_dir=str(run.path), num_actors=2)
    evaluating = eval_driver._Evaluating(
        evaluators.plan_run(run, step="all"), job, None, Ground(run, lambda loss: None)
    )
    evaluating._scan()
    evaluating._take(Outcome(evaluating._next(), None, error="the evaluator process died"))
    pieces = [evaluating._next() for _ in range(4)]
    assert [None if piece is None else piece.tasks[0].trial.name for piece in pieces] == ["0000", "0001", "0002", None]
    assert all(piece is None or not piece.others for piece in pieces)
