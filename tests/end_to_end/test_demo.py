"""The main job as a subprocess: sweep, evaluation, records, and the same command again."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kauldron_core import rundir

# It starts a Ray of its own and a new MLflow store, and trains four models: about 45 s on two quiet cores.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

WORDS = (
    "-m",
    "pipelines.sweep",
    "pipelines/configs/digits.py",
    "--sweep.optimizer.learning_rate=[1e-3, 1e-2]",
    "--sweep.model.hidden=[32, 128]",
    "--cfg.checkpointer.save_interval_steps=250",
    "--run.name=demo",
)


def test_the_demo(
    tmp_path: Path,
    python: Callable[..., subprocess.CompletedProcess[str]],
    runs_in: Callable[[Path], dict[str, Any]],
) -> None:
    done = python(*WORDS, f"--run.root={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr

    run = rundir.RunDir(tmp_path / "demo")
    accuracies: dict[str, float] = {}
    for trial in run.trials():
        assert trial.status() == "done"
        results = rundir.read_eval_results(trial)
        assert set(results) == {("test", 250), ("test", 500)}
        assert {record["num_examples"] for record in results.values()} == {360}
        accuracies[trial.name] = results["test", 500]["values"]["metrics/accuracy"]
    assert len(accuracies) == 4
    assert max(accuracies.values()) >= 0.97

    shown = re.findall(r"^ (\d{4}-\S+)", done.stdout, re.MULTILINE)
    assert [accuracies[name] for name in shown] == sorted(accuracies.values(), reverse=True)
    assert f"run       {run.path}" in done.stdout
    assert f"mlflow ui --backend-store-uri sqlite:///{tmp_path}/mlflow.db --host 127.0.0.1" in done.stdout

    recorded = runs_in(tmp_path)
    parent = recorded.pop("demo")
    assert set(recorded) == set(accuracies)
    assert {child.info.status for child in [parent, *recorded.values()]} == {"FINISHED"}
    for name, child in recorded.items():
        assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert child.data.metrics["test/metrics/accuracy"] == accuracies[name]
        assert {"sweep.optimizer.learning_rate", "sweep.model.hidden"} <= set(child.data.tags)
        assert (Path(child.info.artifact_uri) / "config.json").read_text() == run.trial(name).config_path.read_text()

    again = python(*WORDS, f"--run.root={tmp_path}")
    assert again.returncode == 0, again.stdout + again.stderr
    assert len(runs_in(tmp_path)) == 5
    assert all(len(rundir.list_segments(trial.events)) == 1 for trial in run.trials())
