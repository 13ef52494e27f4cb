"""`kdr rm` and `kdr stop` know a driver that is at work as the driver's own lock does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kauldron_core import rundir
from pipelines.cli import main


def test_a_driver_that_lives_keeps_its_run_however_late_its_sign_of_life(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F30: `rm` and `stop` went by the date alone, which a suspended process or another clock makes wrong."""
    run = rundir.RunDir.create(tmp_path / "run")
    with run.lock():
        os.utime(run.path / ".lock" / "00000001", (1e9, 1e9))
        assert main(["rm", str(run.path), "--yes"]) == 2
        assert "a driver is at work on it" in capsys.readouterr().err
        assert main(["stop", str(run.path)]) == 0
    assert main(["stop", str(run.path)]) == 2
    assert main(["rm", str(run.path), "--yes"]) == 0
    assert not run.exists()
