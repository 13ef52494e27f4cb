"""An evaluator that is killed and started again: one result per checkpoint, no finished one repeated, none missed."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import evaluators
from kauldron_core import rundir
from tests.evaluators import tiny

HERE = pathlib.Path(__file__).parent
pytestmark = pytest.mark.process


@pytest.mark.parametrize(("moment", "finished"), [("before", [10]), ("between", [10]), ("after", [10, 20])])
def test_killed_around_a_record_and_started_again(trial: rundir.TrialDir, moment: str, finished: list[int]):
    """E14: killed around a record and started again."""
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, str(HERE / "killed_evaluator.py"), str(trial.path), moment]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    before = rundir.read_eval_results(trial)
    assert [step for _, step in before] == finished
    assert evaluators.due(trial, finished=True) == [("test", step) for step in tiny.STEPS if step not in finished]

    started = time.monotonic()
    records = evaluators.evaluate_run(trial, step="all")
    assert time.monotonic() - started < 60, "the dead evaluator's lease was waited for"
    assert [(record["step"], record["status"]) for record in records] == [(step, "done") for step in tiny.STEPS]
    after = rundir.read_eval_results(trial)
    assert [step for _, step in after] == tiny.STEPS
    for key, record in before.items():
        assert after[key] == record, "a finished evaluation was repeated"
    assert not (trial.evals / "test" / "replaced").exists()
