"""A kill at any moment leaves every file readable, and one of several claimants wins. Real processes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
pytestmark = pytest.mark.process


def run_script(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(HERE / script), *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize(
    "scenario",
    [
        *("replace", "create", "events", "status", "result", "result-again", "lease", "lease-forget", "lock", "layout"),
        *("table", "probe", "pending"),
    ],
)
def test_a_writer_killed_at_every_system_call_leaves_old_or_new(scenario: str):
    ended = run_script("killed_writers.py", scenario)
    assert ended.returncode == 0, ended.stderr
    points = int(ended.stdout.split()[0])
    assert points >= 15, "the harness has hardly tried anything"


def test_the_harness_sees_a_writer_that_writes_in_place():
    ended = run_script("killed_writers.py", "in-place")
    assert ended.returncode == 1
    assert "a reader found ''" in ended.stderr


@pytest.mark.parametrize(
    "scenario",
    ["fresh_lease", "stale_lease", "many_generations", "stale_lock", "attempt_numbers", "results", "runs"],
)
def test_of_several_claimants_one_wins(scenario: str):
    ended = run_script("racing_claimants.py", scenario, "5")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.soak
@pytest.mark.parametrize("scenario", ["stale_lease", "many_generations"])
def test_of_several_claimants_one_wins_for_long(scenario: str):
    ended = run_script("racing_claimants.py", scenario, "200")
    assert ended.returncode == 0, ended.stderr
