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


def kill(number: signal.Signals) -> Callable[[subprocess.Popen[bytes]], None]:
    return lambda process: process.send_signal(number)


@pytest.mark.parametrize(
    ("how", "end", "code", "status"),
    [
        ("SIGTERM", kill(signal.SIGTERM), 143, "KILLED"),
        ("SIGKILL", kill(signal.SIGKILL), -9, "KILLED"),
        ("SIGINT", kill(signal.SIGINT), 130, "KILLED"),
        ("raise", None, 1, "FAILED"),
        ("exit", None, 1, "FAILED"),
    ],
    ids=["SIGTERM", "SIGKILL", "Ctrl-C", "exception", "exit(1)"],
)
def test_l18_every_end_has_its_status(
    how: str, end: Callable[[Any], None] | None, code: int, status: str, tmp_path: Path, store: Store, client: Any
) -> None:
    config, name = tmp_path / "endless.py", f"ends-{how}"
    config.write_text(CONFIG)
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.train", str(config), f"--run.root={tmp_path}", f"--run.name={name}"],
        env={**os.environ, **store.environment, "PYTHONPATH": os.getcwd(), "END": how},
    )
    try:
        if end is not None:
            wait_until(lambda: any(run.data.metrics for run in runs_of(client, name)))
            end(process)
        assert process.wait(100) == code
    finally:
        process.kill()
    wait_until(lambda: {run.info.status for run in runs_of(client, name) if run.info.run_name == "0000"} == {status})


def runs_of(client: Any, name: str) -> list[Any]:
    found = client.search_experiments(filter_string=f"name LIKE '{name}-%'")
    return list(search_runs(client, [one.experiment_id for one in found]))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 80
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.5)
