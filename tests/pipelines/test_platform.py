"""A platform that is asked for and not there is one line: what was asked for, and what there is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kauldron_core import rundir

pytestmark = pytest.mark.process

DIGITS = str(Path(__file__).parents[2] / "pipelines/configs/digits.py")
WORKER = """
from kauldron_core.errors import RunFailed
from ray_cluster.workers.jax_process import ProcessSettings, prepare_process
try:
    prepare_process(ProcessSettings(run_dir=".", platform="cpu"))
except RunFailed as error:
    print(error)
"""


def run(*words: str, platform: str, folder: Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "JAX_PLATFORMS": platform, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run([sys.executable, *words], env=variables, cwd=folder, capture_output=True, text=True)


def test_training_on_a_platform_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    """F29: `JAX_PLATFORMS=cuda` without CUDA was "AssertionError: " after 44 lines."""
    ended = run("-m", "pipelines.train", DIGITS, "--no-tracking", platform="cuda", folder=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "JAX_PLATFORMS=cuda: JAX finds no such platform" in ended.stderr
    assert "Devices here: cpu" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_variables_of_a_run_count_for_training_in_this_process_too(tmp_path: Path) -> None:
    """F29: `kdr train --run.env=...` had no effect, in silence, like what only Ray can do."""
    words = (DIGITS, "--no-tracking", '--run.env={"JAX_PLATFORMS": "cuda"}', "--run.hosts=2", "--run.name=a")
    ended = run("-m", "pipelines.train", *words, platform="cpu", folder=tmp_path)
    assert ended.returncode == 2
    note, error = ended.stderr.splitlines()
    assert note.startswith("note: one run in this process takes no --run.hosts. On Ray: ")
    assert "pipelines.sweep" in note
    assert error.startswith("error: JAX_PLATFORMS=cuda: JAX finds no such platform")


def test_a_sweep_on_another_platform_than_its_resources_is_refused_before_ray_starts(tmp_path: Path) -> None:
    """F29: with `--run.env` on Ray each trial was tried twice, and the evaluators three times."""
    words = (DIGITS, "--sweep.seed=[0, 1]", "--no-tracking", '--run.env={"JAX_PLATFORMS": "cuda"}', "--run.name=a")
    ended = run("-m", "pipelines.sweep", *words, platform="cpu", folder=tmp_path)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: JAX_PLATFORMS=cuda: a process with CPU 1 runs on cpu. Leave the variable out")
    assert not (tmp_path / "runs" / "a").exists()


def test_evaluating_on_it_is_one_line_too(tmp_path: Path) -> None:
    """F29: the same for `kdr eval`."""
    trial = rundir.TrialDir(tmp_path / "trial").create("{}")
    ended = run("-m", "pipelines.evaluate", str(trial.path), "--no-tracking", platform="cuda", folder=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "JAX_PLATFORMS=cuda: JAX finds no such platform" in ended.stderr


def test_a_worker_s_process_says_so_with_its_node(tmp_path: Path) -> None:
    """F29: the same in a worker of a sweep or an evaluator actor, whose variables `--run.env` sets."""
    ended = run("-c", WORKER, platform="cuda", folder=tmp_path)
    assert ended.stdout.count("\n") == 1, ended.stderr
    assert f"node {os.uname().nodename}: JAX can't start on cpu: JAX_PLATFORMS=cuda" in ended.stdout
