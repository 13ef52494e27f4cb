"""Packs on eight devices, which only a child with an environment of its own has."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent


@pytest.mark.process
@pytest.mark.parametrize("marked", ["not soak", pytest.param("soak", marks=pytest.mark.soak)])
def test_packs_on_eight_devices(marked: str) -> None:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    environment["PYTHONPATH"] = str(FOLDER.parents[2])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marked]
    command.append(str(FOLDER / "on_eight_devices.py"))
    child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert child.returncode == 0, child.stdout[-8000:]
    assert " passed" in child.stdout and "skipped" not in child.stdout
