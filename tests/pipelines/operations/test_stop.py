"""`kdr stop` against a `kdr train` that is really running."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from kauldron_core import rundir
from pipelines.cli import main

pytestmark = pytest.mark.process

WORDS = (
    "pipelines/configs/digits.py",
    "--cfg.num_train_steps=1_000_000",
    "--cfg.model.hidden=8",
    "--cfg.checkpointer.save_interval_steps=None",
    "--cfg.evals={}",
    "--run.name=endless",
    "--no-tracking",
)


def test_a_training_run_is_stopped_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "pipelines.train", *WORDS, f"--run.root={tmp_path}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    run = rundir.RunDir(tmp_path / "endless")
    try:
        deadline = time.monotonic() + 90
        while not any(rundir.read_events(trial.events) for trial in run.trials()):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        assert main(["status", str(run.path)]) == 0
        assert "1 running" in capsys.readouterr().out
        assert main(["stop", str(run.path), "--wait"]) == 0
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 143
    assert "To go on: " in out
    (trial,) = run.trials()
    assert trial.status() == "preempted"
    assert [path.name for path in trial.checkpoints.iterdir() if path.name.startswith("ckpt_")]
