"""Exact numbers, recorded once, warm between calls; failures recorded, not raised."""

from __future__ import annotations

import logging
import pathlib
import shutil
import threading
import time

import jax
import pytest

import evaluators
from kauldron_core import konfig, rundir
from tests.evaluators import tiny


@pytest.mark.parametrize("batch_size", [1, 7, 8, 32, 103, 128])
def test_the_numbers_are_those_computed_by_hand_over_the_whole_split(trial: rundir.TrialDir, batch_size: int):
    correct, loss = tiny.by_hand(trial, 40)
    worker = evaluators.CheckpointEvaluator()
    record = worker.evaluate(trial, "test", 40, changes=evaluators.Changes((f"evals.test.ds.batch_size={batch_size}",)))
    assert record["status"] == "done", record["error"]
    assert record["num_examples"] == tiny.NUM_TEST
    assert record["values"]["metrics/accuracy"] == correct / tiny.NUM_TEST
    assert record["values"]["losses/xent"] == pytest.approx(loss, rel=1e-5)
    assert record["values"]["losses/total"] == pytest.approx(loss, rel=1e-5)


def test_some_answers_are_wrong_or_the_counts_would_prove_nothing(trial: rundir.TrialDir):
    correct, _ = tiny.by_hand(trial, 40)
    assert tiny.NUM_TEST * 0.5 < correct < tiny.NUM_TEST


def test_the_record_says_everything_and_stands_in_the_ledger(trial: rundir.TrialDir):
    record = evaluators.CheckpointEvaluator().evaluate(trial, "test", 20)
    assert rundir.read_eval_results(trial) == {("test", 20): record}
    assert (record["evaluator"], record["step"], record["status"], record["error"]) == ("test", 20, "done", None)
    assert abs(record["finished_ms"] / 1000 - time.time()) < 120
    assert 0 < record["seconds"] < 120
    assert record["fingerprint"] == evaluators.evaluator_fingerprint(konfig.load(trial.config_path), "test")
    assert set(record["values"]) == {"losses/total", "losses/xent", "metrics/accuracy"}
    assert list((trial.evals / "test" / ".leases").iterdir()) == []


def test_a_second_call_evaluates_nothing(trial: rundir.TrialDir):
    worker = evaluators.CheckpointEvaluator()
    first = worker.evaluate(trial, "test", 20)
    assert worker.evaluate(trial, "test", 20) == first
    assert evaluators.CheckpointEvaluator().evaluate(trial, "test", 20) == first


def test_again_evaluates_and_keeps_the_old_record(trial: rundir.TrialDir):
    worker = evaluators.CheckpointEvaluator()
    first = worker.evaluate(trial, "test", 20)
    second = worker.evaluate(trial, "test", 20, again=True)
    assert second["finished_ms"] > first["finished_ms"]
    assert second["values"] == first["values"]
    assert rundir.read_eval_result(trial, "test", 20) == second
    assert rundir.read_json(trial.evals / "test" / "replaced" / "20-1.json") == first


def test_a_damaged_checkpoint_fails_once_and_the_others_go_on(trial: rundir.TrialDir, caplog: pytest.LogCaptureFixture):
    """E10: a damaged checkpoint fails once and the others go on."""
    tiny.damage(trial, 20)
    worker = evaluators.CheckpointEvaluator()
    with caplog.at_level(logging.WARNING):
        records = [worker.evaluate(trial, name, step) for name, step in evaluators.due(trial, finished=True)]
    assert [record["status"] for record in records] == ["done", "failed", "done", "done"]
    assert "ckpt_20" in records[1]["error"]
    assert "\n" not in records[1]["error"]
    assert "Traceback" in records[1]["traceback"]
    assert "at step 20 failed" in caplog.text
    assert evaluators.due(trial, finished=True) == []
    assert evaluators.CheckpointEvaluator().evaluate(trial, "test", 20) == records[1]


def test_a_mended_checkpoint_is_done_again_on_request(trial: rundir.TrialDir, trained: rundir.TrialDir):
    tiny.damage(trial, 20)
    worker = evaluators.CheckpointEvaluator()
    assert worker.evaluate(trial, "test", 20)["status"] == "failed"
    shutil.rmtree(trial.checkpoints / "ckpt_20")
    shutil.copytree(trained.checkpoints / "ckpt_20", trial.checkpoints / "ckpt_20")
    assert worker.evaluate(trial, "test", 20, again=True)["status"] == "done"


def test_a_failure_never_replaces_a_good_result(trial: rundir.TrialDir):
    worker = evaluators.CheckpointEvaluator()
    good = worker.evaluate(trial, "test", 20)
    tiny.damage(trial, 20)
    assert worker.evaluate(trial, "test", 20, again=True)["status"] == "failed"
    assert rundir.read_eval_result(trial, "test", 20) == good


def test_a_checkpoint_that_was_rotated_away_is_skipped(trial: rundir.TrialDir):
    shutil.rmtree(trial.checkpoints / "ckpt_20")
    record = evaluators.CheckpointEvaluator().evaluate(trial, "test", 20)
    assert record["status"] == "skipped"
    assert record["error"] == "the checkpoint was removed before it could be evaluated"
    assert rundir.read_eval_result(trial, "test", 20) == record


def test_a_config_that_cannot_be_built_is_recorded(trial: rundir.TrialDir):
    cfg = konfig.load(trial.config_path)
    cfg.evals.test.ds.loader = konfig.ConfigDict({"__const__": "tests.evaluators.tiny:no_such_loader"})
    konfig.save(cfg, trial.config_path)
    record = evaluators.CheckpointEvaluator().evaluate(trial, "test", 20)
    assert record["status"] == "failed"
    assert "no_such_loader" in record["error"]


def test_an_unknown_evaluator_is_recorded_with_the_closest_name(trial: rundir.TrialDir):
    record = evaluators.CheckpointEvaluator().evaluate(trial, "tset", 20)
    assert "unknown evaluator 'tset'. Did you mean 'test'? Available: test." in record["error"]


def test_checkpoints_and_trials_that_share_a_program_compile_it_once(run: rundir.RunDir):
    cfg = konfig.load(run.trial("0001").config_path)
    cfg.optimizer.learning_rate = 0.5
    konfig.save(cfg, run.trial("0001").config_path)
    worker, compiled = evaluators.CheckpointEvaluator(), []
    jax.monitoring.register_event_duration_secs_listener(lambda name, seconds, **_: compiled.append(name))

    def num_compiled(trial: str, step: int) -> int:
        compiled.clear()
        assert worker.evaluate(run.trial(trial), "test", step)["status"] == "done"
        return sum("backend_compile" in name for name in compiled)

    assert num_compiled("0000", 10) >= 1
    assert num_compiled("0000", 20) == 0
    assert num_compiled("0001", 30) == 0, "another learning rate is no other program"


def test_a_changed_model_is_not_evaluated_with_the_program_of_another(run: rundir.RunDir):
    worker = evaluators.CheckpointEvaluator()
    assert worker.evaluate(run.trial("0000"), "test", 40)["status"] == "done"
    cfg = konfig.load(run.trial("0001").config_path)
    cfg.model.hidden = 16
    konfig.save(cfg, run.trial("0001").config_path)
    record = worker.evaluate(run.trial("0001"), "test", 40)
    assert record["status"] == "failed"
    assert "StateMismatch" in record["error"]


def test_two_workers_at_the_same_time_give_one_record(trial: rundir.TrialDir):
    records: list[rundir.Record] = []

    def work() -> None:
        records.append(evaluators.CheckpointEvaluator().evaluate(trial, "test", 30))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert records == [rundir.read_eval_result(trial, "test", 30)] * 3


def test_who_comes_second_waits_for_the_first(trial: rundir.TrialDir):
    lease = rundir.Lease.acquire(trial.evals / "test" / ".leases" / "10")
    assert lease is not None
    found: list[rundir.Record] = []
    waiting = threading.Thread(
        target=lambda: found.append(evaluators.CheckpointEvaluator().evaluate(trial, "test", 10))
    )
    waiting.start()
    time.sleep(0.5)
    assert found == []
    rundir.write_eval_result(trial, "test", 10, {"status": "done", "values": {"by": 1.0}})
    lease.release(forget=True)
    waiting.join(60)
    assert found[0]["values"] == {"by": 1.0}


def test_a_trial_can_be_moved(trial: rundir.TrialDir, tmp_path: pathlib.Path):
    shutil.move(trial.path, tmp_path / "elsewhere")
    record = evaluators.CheckpointEvaluator().evaluate(tmp_path / "elsewhere", "test", 40)
    assert record["status"] == "done", record["error"]


def test_the_optimizer_is_not_read(trial: rundir.TrialDir):
    """An evaluation under a config with another optimizer would not fit, if its state were read."""
    worker = evaluators.CheckpointEvaluator()
    plain = worker.evaluate(trial, "test", 20)
    record = worker.evaluate(
        trial, "test", 20, as_name="again", changes=evaluators.Changes(("optimizer=optax.sgd(0.1, momentum=0.9)",))
    )
    assert (record["status"], record["values"]) == ("done", plain["values"]), record["error"]
