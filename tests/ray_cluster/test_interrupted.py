"""A driver with a Ray of its own that is interrupted or killed: nothing is lost, nothing is left, and it goes on."""

import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

import ray_cluster
from kauldron_core import rundir
from tests.ray_cluster import driver_process, tiny

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_session", "no_leaks")]


@pytest.fixture
def driver(run_dir):
    """Starts a driver as a terminal would, in a process group of its own, and ends what is left of it."""
    # Without the address and token of the session's Ray: this one starts another.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_A")}
    command = [sys.executable, "-m", "tests.ray_cluster.driver_process", str(run_dir)]
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    yield process
    process.kill()
    process.wait()


def _wait_until(is_so, timeout_s: float = 100) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_driver_leaves_nothing_behind_and_its_run_goes_on(run_dir, driver, number):
    run = rundir.RunDir(run_dir)
    saved = [run.trial(name).checkpoints / f"ckpt_{tiny.SAVE_EVERY}" for name in ("0000", "0001")]
    _wait_until(lambda: all(folder.exists() for folder in saved) or driver.poll() is not None)
    assert (run.path / ".ray_token").stat().st_mode & 0o777 == 0o600
    children = psutil.Process(driver.pid).children(recursive=True)
    but_agents = [child for child in children if "Agent" not in child.name()]
    ray_folder = _ray_folder(children)
    assert os.path.isdir(ray_folder)

    # A terminal sends Ctrl-C to the whole group, Ray's processes too.
    (os.killpg if number == signal.SIGINT else os.kill)(driver.pid, number)
    assert driver.wait(60) == {signal.SIGINT: 130, signal.SIGKILL: -9}[number]
    _, alive = psutil.wait_procs(but_agents, timeout=20)
    assert not alive
    statuses = [run.trial(f"{index:04d}").status() for index in range(3)]
    if number == signal.SIGKILL:
        assert statuses == ["running", "running", "queued"]
    else:
        assert statuses == ["preempted", "preempted", "queued"]
        assert not (run.path / ".ray_token").exists()
        assert not os.path.exists(ray_folder)

    results = ray_cluster.run(driver_process.plan(run_dir))
    assert results.ok
    assert {row.step for row in results.rows} == {tiny.NUM_STEPS}
    for row in results.rows:
        events = rundir.read_events(run.trial(row.name).events)
        steps = [event["step"] for event in events if event["kind"] == "metrics"]
        assert steps == sorted(set(steps))
    # Ray's agents look for a killed driver every five seconds and believe it the fifth time.
    _, alive = psutil.wait_procs(children, timeout=40)
    assert not alive


def _ray_folder(processes: list[psutil.Process]) -> str:
    """Returns the temporary folder of the Ray that these processes belong to."""
    commands = " ".join(word for process in processes for word in process.cmdline())
    return re.findall(r"/tmp/kdr-\w+", commands)[0]
