"""`evaluate_run`: what `kdr eval` and the end of `kdr train` do."""

from __future__ import annotations

import os
import pathlib
import pickle
import shutil

import numpy as np
import pytest

import evaluators
from evaluators.trial import standalone_strategies
from kauldron_core import kd, konfig, rundir
from kauldron_core.errors import ConfigError, DamagedFile
from tests.evaluators import tiny

ROOT = pathlib.Path(__file__).parents[2]


def keys(records: list[rundir.Record]) -> list[tuple[str, str, int, str]]:
    return [(record["trial"], record["evaluator"], record["step"], record["status"]) for record in records]


def one_line_error(*args: object, **kwargs: object) -> str:
    with pytest.raises(ConfigError) as caught:
        evaluators.evaluate_run(*args, **kwargs)  # pyright: ignore[reportArgumentType]
    message = str(caught.value)
    assert "\n" not in message
    return message


def set_evals(trial: rundir.TrialDir, **nodes: konfig.ConfigDict) -> None:
    konfig.save(tiny.config(**nodes), trial.config_path)


# -- what is evaluated
def test_a_trial_by_default_its_latest_checkpoint(trial: rundir.TrialDir):
    told: list[rundir.Record] = []
    records = evaluators.evaluate_run(trial, on_record=told.append)
    assert keys(records) == [("trial", "test", 40, "done")]
    assert told == records
    assert list(rundir.read_eval_results(trial)) == [("test", 40)]


def test_a_run_all_its_trials_oldest_checkpoint_first(run: rundir.RunDir):
    records = evaluators.evaluate_run(os.fspath(run), step="all")
    expected = [(name, "test", step, "done") for name in ("0000", "0001") for step in tiny.STEPS]
    assert keys(records) == expected
    assert evaluators.evaluate_run(run, step="all") == records


@pytest.mark.parametrize("step", [20, "20"])
def test_one_step(run: rundir.RunDir, step: int | str):
    assert [key[2] for key in keys(evaluators.evaluate_run(run, step=step))] == [20, 20]  # pyright: ignore


def test_due_is_what_the_strategies_ask_for(trial: rundir.TrialDir):
    every = tiny.evaluator(tiny.node("evals.StandaloneEveryCheckpoint"))
    last = tiny.evaluator(tiny.node("evals.StandaloneLastCheckpoint"))
    inside = tiny.evaluator(tiny.node("evals.Final"))
    set_evals(trial, every=every, last=last, inside=inside)
    records = evaluators.evaluate_run(trial, step="due")
    assert [key[1:3] for key in keys(records)] == [*(("every", step) for step in tiny.STEPS), ("last", 40)]
    assert evaluators.evaluate_run(trial, step="due") == []


def test_due_without_stand_alone_evaluators_is_nothing(trial: rundir.TrialDir):
    set_evals(trial, inside=tiny.evaluator(tiny.node("evals.Final")))
    assert evaluators.evaluate_run(trial, step="due") == []
    cfg = konfig.load(trial.config_path)
    cfg.evals = {}
    konfig.save(cfg, trial.config_path)
    assert evaluators.evaluate_run(trial, step="due") == []


def test_evaluators_inside_training_run_when_named_or_when_there_are_no_others(trial: rundir.TrialDir):
    set_evals(
        trial,
        test=tiny.evaluator(tiny.node("evals.StandaloneEveryCheckpoint")),
        inside=tiny.evaluator(tiny.node("evals.Final")),
    )
    assert keys(evaluators.evaluate_run(trial)) == [("trial", "test", 40, "done")]
    assert keys(evaluators.evaluate_run(trial, names=["inside"])) == [("trial", "inside", 40, "done")]
    set_evals(trial, inside=tiny.evaluator(tiny.node("evals.Final")))
    assert keys(evaluators.evaluate_run(trial)) == [("trial", "inside", 40, "done")]


def test_a_trial_without_that_checkpoint_is_told_and_the_others_are_done(run: rundir.RunDir):
    shutil.rmtree(run.trial("0000").checkpoints / "ckpt_20")
    records = evaluators.evaluate_run(run, step=20)
    assert keys(records) == [("0000", "test", 20, "skipped"), ("0001", "test", 20, "done")]
    assert records[0]["error"] == "there is no checkpoint at step 20"
    assert rundir.read_eval_results(run.trial("0000")) == {}


def test_over_a_run_one_bad_checkpoint_does_not_stop_the_others(run: rundir.RunDir):
    """E10: over a run one bad checkpoint does not stop the others."""
    tiny.damage(run.trial("0000"), 10)
    statuses = [key[3] for key in keys(evaluators.evaluate_run(run, step="all"))]
    assert statuses == ["failed", *["done"] * 7]


def test_again_replaces_and_keeps(trial: rundir.TrialDir):
    first = evaluators.evaluate_run(trial)
    second = evaluators.evaluate_run(trial, again=True)
    assert first[0]["finished_ms"] < second[0]["finished_ms"]
    assert (trial.evals / "test" / "replaced" / "40-1.json").exists()


# -- changed evaluators
def test_a_changed_evaluator_is_refused_under_its_old_name_and_taken_under_a_new_one(trial: rundir.TrialDir):
    (old,) = evaluators.evaluate_run(trial)
    overrides = ["evals.test.num_batches=2"]
    message = one_line_error(trial, overrides=overrides)
    assert message == (
        "evals.test: not the evaluator that gave the result at step 40 of trial. "
        "Record it under another name: --as=test-2."
    )
    assert one_line_error(trial, overrides=overrides, again=True) == message
    assert one_line_error(trial, overrides=overrides, step=10) == message, "one curve must not mix two evaluators"
    (new,) = evaluators.evaluate_run(trial, overrides=overrides, as_name="short")
    assert (new["evaluator"], new["num_examples"], new["status"]) == ("short", 16, "done")
    assert new["fingerprint"] != old["fingerprint"]
    assert list(rundir.read_eval_results(trial)) == [("short", 40), ("test", 40)]
    assert "--as=short-2" in one_line_error(trial, overrides=["evals.test.num_batches=3"], as_name="short")


def test_what_does_not_change_the_numbers_is_no_change(trial: rundir.TrialDir):
    cfg = konfig.load(trial.config_path)
    before = evaluators.evaluator_fingerprint(cfg, "test")
    cfg.evals.test.run = tiny.node("evals.Final")
    cfg.optimizer.learning_rate = 7.0
    assert evaluators.evaluator_fingerprint(cfg, "test") == before


@pytest.mark.parametrize(
    "change",
    [
        "evals.test.ds.batch_size=4",
        "evals.test.num_batches=3",
        "train_metrics.accuracy.top_k=2",
        "train_losses.xent.weight=2.0",
    ],
)
def test_what_may_change_the_numbers_is_a_change_inherited_parts_too(trial: rundir.TrialDir, change: str):
    cfg = konfig.load(trial.config_path)
    before = evaluators.evaluator_fingerprint(cfg, "test")
    konfig.apply_overrides(cfg, [change])
    assert evaluators.evaluator_fingerprint(cfg, "test") != before


# -- other evaluators, other shares, best
EVALS_FILE = """
from kauldron_core import kd, konfig
from tests.evaluators import tiny

class Mine(kd.metrics.Accuracy):
    pass

def get_config():
    mine = konfig.ConfigDict({"__qualname__": f"{__name__}:Mine", "logits": "preds", "labels": "batch.label"})
    new = tiny.evaluator(tiny.node("evals.Final"), metrics={"top2": tiny.accuracy(top_k=2), "mine": mine})
    return konfig.ConfigDict({"new": new, "short": tiny.evaluator(tiny.node("evals.Final"), num_batches=2)})
"""


def test_evaluators_of_another_file_on_old_checkpoints(
    trial: rundir.TrialDir, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "evals_of_today.py"
    file.write_text(EVALS_FILE)
    monkeypatch.chdir(tmp_path)
    records = evaluators.evaluate_run(trial, evals=file, step="all")
    assert keys(records) == [("trial", name, step, "done") for step in tiny.STEPS for name in ("new", "short")]
    values = records[-2]["values"]
    assert values["metrics/mine"] == tiny.by_hand(trial, 40)[0] / tiny.NUM_TEST < values["metrics/top2"]
    assert records[-1]["num_examples"] == 16
    assert keys(evaluators.evaluate_run(trial, evals=file, names=["test"])) == [("trial", "test", 40, "done")]
    assert "goes by the evaluators of the experiment" in one_line_error(trial, evals=file, step="due")
    (tmp_path / "empty.py").write_text("from kauldron_core import konfig\nget_config = konfig.ConfigDict\n")
    assert "holds no evaluators" in one_line_error(trial, evals=tmp_path / "empty.py")


@pytest.mark.parametrize("shards", [2, 5])
def test_shares_give_the_result_of_the_whole(trial: rundir.TrialDir, shards: int):
    (whole,) = evaluators.evaluate_run(trial)
    (merged,) = evaluators.evaluate_run(trial, shards=shards, again=True)
    assert merged["num_examples"] == whole["num_examples"] == tiny.NUM_TEST
    assert merged["values"]["metrics/accuracy"] == whole["values"]["metrics/accuracy"]
    assert merged["values"] == pytest.approx(whole["values"], rel=1e-7)


def test_shares_of_the_first_batches_are_some_of_them_and_too_many_are_refused(trial: rundir.TrialDir):
    first = {"overrides": ["evals.test.num_batches=3"], "as_name": "first"}
    (whole,) = evaluators.evaluate_run(trial, **first)
    (merged,) = evaluators.evaluate_run(trial, shards=2, again=True, **first)
    assert merged["num_examples"] == whole["num_examples"] == 24
    assert merged["values"] == pytest.approx(whole["values"], rel=1e-7)
    assert one_line_error(trial, shards=4, again=True, **first) == (
        "--shards: evals.test has 3 batches, and 4 shares were asked for. Give 3 at most, or a smaller batch_size."
    )
    for shards in (0, 99_999):
        expected = f"--shards: must be at least 1 and at most 1024, not {shards}."
        assert one_line_error(trial, shards=shards) == expected
    assert list(rundir.read_eval_results(trial)) == [("first", 40)], "a mistake is not recorded"


def test_a_share_can_be_sent_to_another_process(trial: rundir.TrialDir):
    trainer, state = kd.load_run(trial)
    evaluator = trainer.evals["test"]
    shares = [evaluators.evaluate_shard(evaluator, state, index=index, count=2) for index in range(2)]
    left, right = pickle.loads(pickle.dumps(shares))
    merged = evaluator.result(left.merge(right), step=40, seconds=1.0)
    right_answers, _ = tiny.by_hand(trial, 40)
    assert merged.values["metrics/accuracy"] == right_answers / tiny.NUM_TEST


def test_a_plan_can_be_handed_out_to_other_processes(run: rundir.RunDir):
    plan = evaluators.plan_run(run, step="all", overrides=["evals.test.num_batches=2"], as_name="short")
    tasks, options = pickle.loads(pickle.dumps((plan.tasks, plan.options())))
    worker = evaluators.CheckpointEvaluator()
    records = [worker.evaluate(task.trial, task.name, task.step, **options) for task in reversed(tasks)]
    assert len(records) == 8 and {record["num_examples"] for record in records} == {16}
    found = evaluators.evaluate_run(run, step="all", overrides=["evals.test.num_batches=2"], as_name="short")
    assert [record["finished_ms"] for record in found] == [record["finished_ms"] for record in reversed(records)]


def test_the_best_checkpoint_by_a_metric(trial: rundir.TrialDir):
    """F01: the records say that more of it is better."""
    records = evaluators.evaluate_run(trial, step="all")
    best = max(records, key=lambda record: (record["values"]["metrics/accuracy"], -record["step"]))["step"]
    set_evals(
        trial,
        test=tiny.evaluator(tiny.node("evals.StandaloneEveryCheckpoint")),
        other=tiny.evaluator(tiny.node("evals.Final"), num_batches=3),
    )
    (record,) = evaluators.evaluate_run(trial, step="best", names=["other"], metric="test/metrics/accuracy")
    assert (record["step"], record["status"]) == (best, "done")
    message = one_line_error(trial, step="best")
    assert message.startswith("--metric: unset, and neither the sweep (run.metric) nor the checkpointer (best_metric)")
    cfg = konfig.load(trial.config_path)
    cfg.checkpointer.best_metric = "test/metrics/accuracy"
    konfig.save(cfg, trial.config_path)
    assert evaluators.evaluate_run(trial, step="best", names=["other"]) == [record]


def test_rows_of_examples_lie_beside_the_record(trial: rundir.TrialDir):
    asked = tiny.node("evals.PerExample", target="batch.label")
    set_evals(trial, test=tiny.evaluator(tiny.node("evals.StandaloneEveryCheckpoint"), per_example=asked))
    (record,) = evaluators.evaluate_run(trial)
    rows = rundir.read_examples(trial.evals / "test" / record["examples"])
    assert [row["id"] for row in rows] == list(range(tiny.NUM_TEST))
    hits = [int(np.argmax(row["prediction"]) == row["target"]) for row in rows]
    assert sum(hits) == tiny.by_hand(trial, 40)[0]
    assert np.mean([row["losses/xent"] for row in rows]) == pytest.approx(record["values"]["losses/xent"], rel=1e-5)
    assert record["examples_per_s"] > 0
    set_evals(trial, test=tiny.evaluator(tiny.node("evals.StandaloneEveryCheckpoint")))
    assert evaluators.evaluate_run(trial) == [record], "what is kept beside the numbers is no other evaluator"


# -- user's mistakes
def test_an_unknown_path_is_an_error_with_the_closest(run: rundir.RunDir):
    message = one_line_error(run.path.parent / "rum")
    assert "unknown run or trial 'rum'. Did you mean 'run'?" in message
    assert "neither a run directory" in one_line_error(run.trials_path)


def test_an_unknown_step_is_an_error_with_what_there_is(run: rundir.RunDir):
    expected = "--step: unknown step 38. Did you mean 40? Available: 10, 20, 30, 40, latest, best, all."
    assert one_line_error(run, step=38) == expected
    assert "--step: unknown step 'lates'. Did you mean 'latest'?" in one_line_error(run, step="lates")


def test_an_unknown_evaluator_is_an_error_with_the_closest(run: rundir.RunDir):
    expected = "--evals: unknown evaluator 'tset'. Did you mean 'test'? Available: test."
    assert one_line_error(run, names=["tset"]) == expected


def test_no_checkpoint_and_no_trial_are_errors(run: rundir.RunDir, tmp_path: pathlib.Path):
    for name in ("0000", "0001"):
        shutil.rmtree(run.trial(name).checkpoints)
    assert one_line_error(run) == "--step: there is no checkpoint in 2 trials yet."
    assert "has no trials yet" in one_line_error(rundir.RunDir.create(tmp_path / "empty"))


def test_no_evaluators_is_an_error(trial: rundir.TrialDir):
    cfg = konfig.load(trial.config_path)
    cfg.evals = {}
    konfig.save(cfg, trial.config_path)
    assert "evals: this trial has no evaluators" in one_line_error(trial)


def test_a_name_that_cannot_be_is_an_error(trial: rundir.TrialDir):
    assert "--as: evaluator name 'a/b' holds '/'" in one_line_error(trial, as_name="a/b")
    assert "--as: the name 'train' is taken" in one_line_error(trial, as_name="train")
    set_evals(
        trial,
        a=tiny.evaluator(tiny.node("evals.StandaloneEveryCheckpoint")),
        b=tiny.evaluator(tiny.node("evals.StandaloneEveryCheckpoint")),
    )
    assert one_line_error(trial, as_name="x") == "--as: 'x' can name one evaluator, not 2. Add --evals=a."
    assert "--as: the name 'b' is taken" in one_line_error(trial, names=["a"], as_name="b")


def test_an_override_that_does_not_fit_is_an_error(trial: rundir.TrialDir):
    message = one_line_error(trial, overrides=["evals.test.num_batchs=2"], as_name="x")
    assert "num_batchs" in message
    assert "num_batches" in message


def test_everything_is_checked_before_the_first_evaluation(run: rundir.RunDir):
    set_evals(run.trial("0001"), other=tiny.evaluator(tiny.node("evals.StandaloneEveryCheckpoint")))
    assert "unknown evaluator 'test'" in one_line_error(run, names=["test"])
    assert rundir.read_eval_results(run.trial("0000")) == {}


def test_the_example_of_the_readme_runs(run: rundir.RunDir, monkeypatch: pytest.MonkeyPatch):
    readme = (ROOT / "evaluators/README.md").read_text()
    (run.path.parent / "runs").mkdir()
    shutil.move(run.path, run.path.parent / "runs" / "demo")
    monkeypatch.chdir(run.path.parent)
    exec(readme.split("```python\n")[1].split("```")[0], {})
    assert len(rundir.read_eval_results("runs/demo/trials/0000")) == 4


def test_a_config_whose_evaluators_are_none_is_damaged(tmp_path):
    """F52: a trial's config that holds a call or a text in place of its evaluators costs that trial alone."""
    for evals in ({"__qualname__": "os:system", "0": "true"}, {"val": "text"}, [1]):
        rundir.write_json(tmp_path / "config.json", {"evals": evals})
        with pytest.raises(DamagedFile, match="its evals are no evaluators"):
            standalone_strategies(tmp_path)
