"""What the end-to-end tests share: commands as a user types them, and the records that they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DIGITS = "pipelines/configs/digits.py"


@pytest.fixture
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs this interpreter in the repository, as `python WORDS`."""

    def call(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True
        )

    return call


@pytest.fixture
def runs_in() -> Callable[[Path], dict[str, Any]]:
    """Reads all runs of the store `ROOT/mlflow.db`, by name."""

    def read(root: Path) -> dict[str, Any]:
        from pipelines.tracking import Store
        from pipelines.tracking.experiment import search_runs

        client = Store.at(root, environ={}).open()
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        return {run.info.run_name: run for run in search_runs(client, experiments)}

    return read
