"""A sweep as a real Ray job, on a head of our own."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kauldron_core import rundir
from pipelines.demo_job import Head, ray_head

# A head takes 15 s to start, each job 10 s, and the sweep has workers of its own to start.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
KEPT_AT_HOME = ("runs", ".venv", ".env", "mlflow.db")
SWEEP = (
    "-m",
    "pipelines.sweep",
    "pipelines/configs/digits.py",
    "--sweep.model.hidden=[8, 16]",
    "--cfg.num_train_steps=30",
    "--cfg.checkpointer.save_interval_steps=30",
    "--run.name=job",
)


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with ray_head() as started:
        yield started


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory as a user has it: the packages, and things that must not leave the machine."""
    folder = tmp_path_factory.mktemp("checkout")
    for package in ("kauldron_core", "evaluators", "ray_cluster", "pipelines"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", ".rayignore"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("runs", ".venv"):
        (folder / name).mkdir()
        (folder / name / "file").write_text("x")
    (folder / ".env").write_text("PASSWORD=secret")
    (folder / "mlflow.db").write_text("x")
    return folder


def test_a_job_runs_this_interpreter_and_gets_only_what_it_needs(head: Head, checkout: Path) -> None:
    done = head.submit(["-m", "pipelines.demo_job", "show"], working_dir=checkout)
    assert done.returncode == 0
    assert f"interpreter: {sys.executable}" in done.stdout
    shipped = next(line for line in done.stdout.splitlines() if line.startswith("shipped: ")).split()
    assert {"pipelines", "kauldron_core", "pyproject.toml"} <= set(shipped)
    assert not set(KEPT_AT_HOME) & set(shipped)


def test_a_relative_root_is_refused_with_the_absolute_form(head: Head, checkout: Path) -> None:
    done = head.submit(SWEEP, working_dir=checkout)
    assert done.returncode == 1  # the ray command makes every failure a 1
    assert "error: --run.root=runs: inside a Ray job" in done.stdout
    assert "Give an absolute one" in done.stdout


def test_the_sweep_runs_as_a_job(
    head: Head, checkout: Path, tmp_path: Path, runs_in: Callable[[Path], dict[str, Any]]
) -> None:
    done = head.submit([*SWEEP, f"--run.root={tmp_path}"], working_dir=checkout)
    assert done.returncode == 0
    trials = rundir.RunDir(tmp_path / "job").trials()
    assert [trial.status() for trial in trials] == ["done", "done"]
    assert all(rundir.list_eval_results(trial) == {("test", 30)} for trial in trials)
    recorded = runs_in(tmp_path)
    assert set(recorded) == {"job", *(trial.name for trial in trials)}
    assert {run.info.status for run in recorded.values()} == {"FINISHED"}


def test_submit_looks_at_the_nodes_first_and_has_the_exit_status_of_the_program(
    head: Head, checkout: Path, tmp_path: Path, python: Callable[..., Any]
) -> None:
    words = ("-m", "pipelines.submit", f"--address={head.address}", f"--working-dir={checkout}")
    sweep = ("sweep", *SWEEP[2:], f"--run.root={tmp_path}", "--dry-run")
    done = python(*words, *sweep, **head.environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("free GB") < done.stdout.index("0001-hidden=16")
    done = python(*words, "eval", "/nowhere/at/all", **head.environment)
    assert done.returncode == 2
    assert "exit status 2" in done.stderr


def test_no_process_of_the_head_is_left() -> None:
    with ray_head() as short_lived:
        assert len(_processes_of(short_lived)) > 2
    deadline = time.monotonic() + 20
    while left := _processes_of(short_lived):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    assert not short_lived.folder.exists()


def _processes_of(head: Head) -> list[str]:
    """Returns the command lines that name the head's folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append((process / "cmdline").read_text().replace("\0", " "))
    return [line for line in found if str(head.folder) in line]
