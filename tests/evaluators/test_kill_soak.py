"""Random kills of an evaluator over a run with 20 checkpoints: one result for each, none repeated, none missing."""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

import pytest

from kauldron_core import rundir
from tests.evaluators import tiny

KILLS, SEED = int(os.environ.get("KILLS", "30")), int(os.environ.get("SEED", "0"))
HERE = pathlib.Path(__file__).parent
STEPS = list(range(2, tiny.NUM_STEPS + 1, 2))
pytestmark = [pytest.mark.soak, pytest.mark.process, pytest.mark.timeout(3600)]


class Evaluator:
    """An evaluator process at work."""

    def __init__(self, trial: rundir.TrialDir):
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
        command = [sys.executable, str(HERE / "soak_evaluator.py"), str(trial.path)]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill_after(self, seconds: float) -> bool:
        """Returns whether it was still at work when it was killed."""
        time.sleep(seconds)
        self._process.kill()
        return self.end() < 0

    def end(self) -> int:
        self._process.communicate(timeout=300)
        return self._process.returncode


def _left_over(trial: rundir.TrialDir) -> list[str]:
    claims = [str(path) for path in trial.evals.glob("*/.leases/*")]
    return claims + [str(path) for path in trial.evals.rglob(".tmp-*")]


def _look(trial: rundir.TrialDir, before: dict[tuple[str, int], rundir.Record]) -> dict[tuple[str, int], rundir.Record]:
    """Returns the records, after a look at those that stood before."""
    found = rundir.read_eval_results(trial)
    assert {key: found[key] for key in before} == before, "a finished evaluation was repeated"
    return found


def test_random_kills_of_an_evaluator(tmp_path: pathlib.Path) -> None:
    """E14: random kills of an evaluator."""
    cfg = tiny.config()
    cfg.checkpointer.save_interval_steps = 2
    trained = tiny.train(tmp_path / "trained", cfg)
    rng, kills, rounds, left = random.Random(SEED), 0, 0, 0
    whole: dict[int, dict[str, float]] = {}
    while kills < KILLS:
        rounds += 1
        trial = rundir.TrialDir(tmp_path / f"trial-{rounds}")
        shutil.copytree(trained.path, trial.path)
        records: dict[tuple[str, int], rundir.Record] = {}
        while kills < KILLS and len(records) < len(STEPS):
            kills += Evaluator(trial).kill_after(rng.uniform(0.0, 1.0))
            records = _look(trial, records)
            left = max(left, len(_left_over(trial)))
        assert Evaluator(trial).end() == 0
        records = _look(trial, records)
        assert list(records) == [("test", step) for step in STEPS]
        assert {record["status"] for record in records.values()} == {"done"}
        assert not (trial.evals / "test" / "replaced").exists()
        assert _left_over(trial) == []
        values = {step: record["values"] for (_, step), record in records.items()}
        assert values == (whole or values), "another round came to other numbers"
        whole = values
    print(f"{kills} kills in {rounds} rounds of {len(STEPS)} checkpoints; at most {left} files of dead evaluators")
