"""What is due."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import evaluators
from evaluators import trial as trial_lib
from kauldron_core import evals, konfig, rundir
from tests.evaluators import tiny

ROOT = pathlib.Path(__file__).parents[2]


def make_trial(folder: pathlib.Path, steps: list[int], **nodes: konfig.ConfigDict) -> rundir.TrialDir:
    """Returns a trial with a config and committed checkpoints that hold nothing."""
    trial = rundir.TrialDir(folder)
    trial.path.mkdir(parents=True)
    konfig.save(tiny.config(**nodes), trial.config_path)
    for step in steps:
        (trial.checkpoints / f"ckpt_{step}").mkdir(parents=True)
        (trial.checkpoints / f"ckpt_{step}" / "_CHECKPOINT_METADATA").write_text("{}")
    return trial


def every(**fields: object) -> konfig.ConfigDict:
    return tiny.evaluator(tiny.node("evals.StandaloneEveryCheckpoint"), **fields)


def last() -> konfig.ConfigDict:
    return tiny.evaluator(tiny.node("evals.StandaloneLastCheckpoint"))


def test_the_oldest_comes_first_and_evaluators_in_the_order_of_the_config(tmp_path: pathlib.Path):
    trial = make_trial(tmp_path / "trial", [100, 90], test=every(), more=every())
    assert evaluators.due(trial, finished=False) == [("test", 90), ("more", 90), ("test", 100), ("more", 100)]


def test_what_has_a_record_is_not_due_whatever_came_of_it(tmp_path: pathlib.Path):
    trial = make_trial(tmp_path / "trial", [1, 2, 3, 4])
    for step, status in ((1, "done"), (2, "failed"), (3, "skipped")):
        rundir.write_eval_result(trial, "test", step, {"status": status})
    assert evaluators.due(trial, finished=False) == [("test", 4)]


def test_the_last_checkpoint_is_due_once_training_has_ended(tmp_path: pathlib.Path):
    trial = make_trial(tmp_path / "trial", [1, 2], final=last())
    assert evaluators.due(trial, finished=False) == []
    assert evaluators.due(trial, finished=True) == [("final", 2)]


def test_evaluators_inside_training_are_never_due(tmp_path: pathlib.Path):
    inside = {
        "a": tiny.evaluator(tiny.node("evals.EveryNSteps", n=1)),
        "b": tiny.evaluator(tiny.node("evals.Once", n=1)),
        "c": tiny.evaluator(tiny.node("evals.Final")),
    }
    trial = make_trial(tmp_path / "trial", [1, 2], **inside)
    assert evaluators.due(trial, finished=True) == []


def test_nothing_is_due_without_checkpoints_or_evaluators(tmp_path: pathlib.Path):
    assert evaluators.due(make_trial(tmp_path / "a", []), finished=True) == []
    trial = make_trial(tmp_path / "b", [1])
    cfg = konfig.load(trial.config_path)
    cfg.evals = {}
    konfig.save(cfg, trial.config_path)
    assert evaluators.due(trial, finished=True) == []


def test_a_strategy_of_the_users_own_is_asked(tmp_path: pathlib.Path):
    konfig.trust("tests")
    own = konfig.ConfigDict({"__qualname__": "tests.evaluators.test_ledger:EverySecond", "job_group": "x"})
    trial = make_trial(tmp_path / "trial", [1, 2, 3, 4, 5, 6], test=tiny.evaluator(own))
    assert evaluators.due(trial, finished=False) == [("test", 1), ("test", 3), ("test", 5)]
    assert evaluators.due(trial, finished=True)[-1] == ("test", 6)


class EverySecond(evals.StandaloneEveryCheckpoint):
    def due_steps(self, checkpoint_steps, is_final):
        return sorted(checkpoint_steps)[::2]


def test_an_evaluator_that_is_a_reference_to_another_counts(tmp_path: pathlib.Path):
    trial = make_trial(tmp_path / "trial", [1])
    cfg = konfig.load(trial.config_path)
    cfg.evals.second = cfg.ref.evals.test
    konfig.save(cfg, trial.config_path)
    assert evaluators.due(trial, finished=False) == [("test", 1), ("second", 1)]


def test_a_config_that_was_replaced_is_read_again(tmp_path: pathlib.Path):
    trial = make_trial(tmp_path / "trial", [1])
    assert evaluators.due(trial, finished=False) == [("test", 1)]
    konfig.save(tiny.config(other=every()), trial.config_path)
    assert evaluators.due(trial, finished=False) == [("other", 1)]


def _saved_at(trial: rundir.TrialDir, times_s: dict[int, float]) -> None:
    for step, time_s in times_s.items():
        metadata = trial.checkpoints / f"ckpt_{step}" / "metadata" / "metadata"
        metadata.parent.mkdir(parents=True, exist_ok=True)
        metadata.write_text(json.dumps({"saved_at": time_s}))


def test_checkpoints_too_close_after_an_evaluated_one_are_left_out(tmp_path: pathlib.Path):
    spaced = tiny.evaluator(tiny.node("evals.StandaloneEveryCheckpoint", min_interval_s=60))
    trial = make_trial(tmp_path / "trial", [10, 20, 30, 40, 50], test=spaced)
    _saved_at(trial, {10: 1000, 20: 1030, 30: 1060, 40: 1119, 50: 1121})
    assert evaluators.due(trial, finished=False) == [("test", 10), ("test", 30), ("test", 50)]
    # The same whoever asks again, also when what was evaluated is removed, and what was skipped counts for nothing.
    rundir.write_eval_result(trial, "test", 10, {"status": "done", "saved_ms": 1_000_000})
    rundir.write_eval_result(trial, "test", 30, {"status": "skipped", "saved_ms": 1_060_000})
    shutil.rmtree(trial.checkpoints / "ckpt_10")
    assert evaluators.due(trial, finished=False) == [("test", 40)]
    assert evaluators.due(trial, finished=True) == [("test", 40), ("test", 50)], "the last one always"


def test_every_nth_checkpoint_whatever_was_removed_since(tmp_path: pathlib.Path):
    """Checkpoints that were made at any time: every 20 s, say, or when the process was asked to end."""
    sparse = tiny.evaluator(tiny.node("evals.EveryNCheckpoints", n=3))
    steps = [10, 17, 30, 31, 50, 68, 70]
    trial = make_trial(tmp_path / "trial", steps, test=sparse)
    with rundir.EventWriter(trial.events) as log:
        for step in steps[:5]:
            log.append("checkpoint", step)
    assert evaluators.due(trial, finished=False) == [("test", 30), ("test", 68)], "the events may come a little later"
    for step in steps[:4]:
        shutil.rmtree(trial.checkpoints / f"ckpt_{step}")
    assert evaluators.due(trial, finished=False) == [("test", 68)]
    # The process died after step 31, and what it made since was damaged: 50 and 68 are made again, and 69 between them.
    for step in steps[4:]:
        shutil.rmtree(trial.checkpoints / f"ckpt_{step}")
    with rundir.EventWriter(trial.events) as log:
        log.resumed_from(31)
        for step in (50, 69, 70):
            log.append("checkpoint", step)
            (trial.checkpoints / f"ckpt_{step}").mkdir()
            (trial.checkpoints / f"ckpt_{step}" / "_CHECKPOINT_METADATA").write_text("{}")
    assert evaluators.due(trial, finished=False) == [("test", 69)]
    assert evaluators.due(trial, finished=True) == [("test", 69), ("test", 70)]


REAL = {
    "EveryNCheckpoints": evals.EveryNCheckpoints(n=3),
    "EveryNSteps": evals.EveryNSteps(3),
    "Once": evals.Once(3),
    "Final": evals.Final(),
    "StandaloneEveryCheckpoint": evals.StandaloneEveryCheckpoint(),
    "StandaloneLastCheckpoint": evals.StandaloneLastCheckpoint(),
}


@pytest.mark.parametrize("name", REAL)
@given(steps=st.sets(st.integers(0, 20)), is_final=st.booleans())
def test_what_the_driver_assumes_of_a_strategy_is_what_it_does(name: str, steps: set[int], is_final: bool):
    known = trial_lib.KNOWN[name](konfig.ConfigDict({"n": 3}))
    assert known.is_standalone == REAL[name].is_standalone
    assert known.due_steps(steps, is_final) == REAL[name].due_steps(steps, is_final)
    assert getattr(known, "counts_removed", False) == getattr(REAL[name], "counts_removed", False)


def test_every_strategy_of_ours_is_known():
    ours = {name for name in evals.__all__ if isinstance(getattr(evals, name), type)}
    strategies = {name for name in ours if issubclass(getattr(evals, name), evals.RunStrategy)} - {"RunStrategy"}
    assert strategies == set(trial_lib.KNOWN)


@pytest.mark.process
def test_asking_what_is_due_loads_no_jax(tmp_path: pathlib.Path):
    trial = make_trial(tmp_path / "trial", [1, 2])
    code = (
        "import sys, evaluators\n"
        f"print(evaluators.due({str(trial.path)!r}, finished=False))\n"
        "print(sorted({'jax', 'numpy', 'orbax', 'flax', 'ray', 'mlflow', 'tensorflow'} & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["[('test', 1), ('test', 2)]", "[]"]
