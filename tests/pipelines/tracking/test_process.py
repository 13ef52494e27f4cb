"""The recorder in a process of its own: it follows, it is started again, and it outlives a killed driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kauldron_core import rundir
from pipelines.tracking import RecorderProcess, Store

pytestmark = [pytest.mark.slow, pytest.mark.process]

DONE = SimpleNamespace(ok=True)
CONFIG = json.dumps({"model": {"hidden": 32}})


def wait_until(condition: Callable[[], Any], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.2)


def test_it_records_while_the_driver_works_and_the_rest_at_the_end(make_run: Any) -> None:
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    recorder = RecorderProcess(run.store, warn=run.warnings.append)
    recorder.prepare()
    recorder.start(run.dir)
    run.log(trial, range(1, 4))
    wait_until(lambda: "a" in run.runs() and len(run.curve("a", "train/losses/total")) == 3)
    run.log(trial, range(4, 6))
    rundir.write_status(trial, "done")
    recorder.close(DONE)
    assert [step for step, _ in run.curve("a", "train/losses/total")] == [1, 2, 3, 4, 5]
    assert {one.info.status for one in run.runs().values()} == {"FINISHED"}
    assert recorder.pid is None
    assert run.warnings == []


def test_a_killed_recorder_is_started_again_and_doubles_nothing(make_run: Any) -> None:
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    recorder = RecorderProcess(run.store, warn=run.warnings.append)
    recorder.start(run.dir)
    run.log(trial, range(1, 4))
    wait_until(lambda: "a" in run.runs())
    first = recorder.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: recorder.poll() or recorder.pid != first)
    run.log(trial, range(4, 6))
    rundir.write_status(trial, "done")
    recorder.close(DONE)
    assert [step for step, _ in run.curve("a", "train/losses/total")] == [1, 2, 3, 4, 5]
    assert len(run.warnings) == 1
    assert "started again" in run.warnings[0]


def test_when_the_driver_is_killed_its_recorder_closes_the_runs(make_run: Any) -> None:
    """L18: when the driver is killed its recorder closes the runs."""
    run = make_run()
    run.log(run.add_trial("a", CONFIG), range(1, 4))
    driver = _start_driver(run.store, run.dir.path)
    wait_until(lambda: "a" in run.runs() and run.runs()["a"].data.metrics)
    driver.kill()
    driver.wait()
    wait_until(lambda: {one.info.status for one in run.runs().values()} == {"KILLED"})


def test_a_recorder_that_has_nothing_to_record_touches_nothing(tmp_path: Path) -> None:
    """A mistake in an override is found after the recorder was prepared."""
    recorder = RecorderProcess(Store.at(tmp_path / "runs", environ={}))
    recorder.prepare()
    recorder.stop()
    assert not (tmp_path / "runs").exists()


def _start_driver(store: Store, run_dir: Path) -> subprocess.Popen[bytes]:
    code = f"""
import time
from kauldron_core.rundir import RunDir
from pipelines.tracking import RecorderProcess, Store
recorder = RecorderProcess(Store(uri={store.uri!r}, root={store.root!r}))
recorder.start(RunDir({str(run_dir)!r}))
while True:
    time.sleep(1)
    recorder.poll()
"""
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.getcwd()})
