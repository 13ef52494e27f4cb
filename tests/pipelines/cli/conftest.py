"""A run that is there, for commands about runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kauldron_core import konfig, rundir
from pipelines.cli import main
from tests.evaluators import tiny


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> rundir.RunDir:
    """A run with one trained trial, evaluated at its last checkpoint."""
    run = rundir.RunDir.create(tmp_path_factory.mktemp("runs") / "demo", {"metric": "test/losses/total", "mode": "min"})
    trial = tiny.train(run.trial("0000").path)
    rundir.write_status(trial, "done")
    assert main(["eval", str(run.path), "--no-tracking"]) == 0
    return run


@pytest.fixture
def run(made: rundir.RunDir, tmp_path: Path) -> rundir.RunDir:
    konfig.trust("tests")
    return rundir.RunDir(shutil.copytree(made.path, tmp_path / "runs" / "demo"))
