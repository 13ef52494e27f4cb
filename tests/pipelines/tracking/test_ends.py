"""However a run ends, its record says so: real processes that really end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import main
from pipelines.tracking import Store
from pipelines.tracking.experiment import search_runs

pytestmark = [pytest.mark.slow, pytest.mark.process]

CONFIG = """
import os, sys
from pipelines.configs import digits

def load():
    if os.environ["END"] == "raise":
        raise RuntimeError("it broke")
    if os.environ["END"] == "exit":
        sys.exit(1)
    return digits.load_train()

def get_config():
    cfg = digits.get_config()
    cfg.model.hidden = 8
    cfg.num_train_steps = 1_000_000
    cfg.train_ds.loader = load
    return cfg
"""


SIGNALS = {"SIGTERM": (signal.SIGTERM, 143), "SIGKILL": (signal.SIGKILL, -9), "Ctrl-C": (signal.SIGINT, 130)}


def words_of(tmp_path: Path, name: str) -> list[str]:
    config = tmp_path / "endless.py"
    config.write_text(CONFIG)
    return [str(config), f"--run.root={tmp_path}", f"--run.name={name}"]


def test_a_run_that_a_signal_ends_is_killed(tmp_path: Path, store: Store, client: Any) -> None:
    """L18: a run that a signal ends is killed."""
    environment = {**os.environ, **store.environment, "PYTHONPATH": os.getcwd(), "END": "signal"}
    # Side by side: each is mostly waited for.
    processes = {
        how: subprocess.Popen([sys.executable, "-m", "pipelines.train", *words_of(tmp_path, how)], env=environment)
        for how in SIGNALS
    }
    try:
        for how, process in processes.items():
            wait_until(lambda name=how: any(run.data.metrics for run in runs_of(client, name)))
            process.send_signal(SIGNALS[how][0])
        assert {how: process.wait(100) for how, process in processes.items()} == {
            how: code for how, (_, code) in SIGNALS.items()
        }
    finally:
        for process in processes.values():
            process.kill()
    for how in SIGNALS:
        wait_until(lambda name=how: statuses_of(client, name) == {"KILLED"})


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_run_that_raises_or_exits_has_failed(
    how: str, tmp_path: Path, store: Store, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L18: a run that raises or exits has failed."""
    for variable, value in {**store.environment, "END": how}.items():
        monkeypatch.setenv(variable, value)
    assert main(["train", *words_of(tmp_path, f"ends-{how}")]) == 1
    assert statuses_of(client, f"ends-{how}") == {"FAILED"}


def statuses_of(client: Any, name: str) -> set[str]:
    return {run.info.status for run in runs_of(client, name) if run.info.run_name == "0000"}


def runs_of(client: Any, name: str) -> list[Any]:
    found = client.search_experiments(filter_string=f"name LIKE '{name}-%'")
    return list(search_runs(client, [one.experiment_id for one in found]))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 80
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.5)
