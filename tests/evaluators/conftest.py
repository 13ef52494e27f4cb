"""One trained run for all tests of this folder; each test gets a copy."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from kauldron_core import konfig, rundir
from tests.evaluators import tiny


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> rundir.TrialDir:
    return tiny.train(tmp_path_factory.mktemp("trained") / "trial")


@pytest.fixture
def trial(trained: rundir.TrialDir, tmp_path: pathlib.Path) -> rundir.TrialDir:
    """A finished trial with checkpoints at 10, 20, 30 and 40 and no evaluations."""
    konfig.trust("tests")
    shutil.copytree(trained.path, tmp_path / "trial")
    return rundir.TrialDir(tmp_path / "trial")


@pytest.fixture
def run(trained: rundir.TrialDir, tmp_path: pathlib.Path) -> rundir.RunDir:
    """A run with two finished trials, `0000` and `0001`."""
    konfig.trust("tests")
    run = rundir.RunDir.create(tmp_path / "run")
    for name in ("0000", "0001"):
        shutil.copytree(trained.path, run.trial(name).path)
    return run
