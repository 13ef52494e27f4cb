"""A driver that is interrupted or killed: nothing is lost, nothing is left, and its run goes on."""

import os
import pathlib
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
from tests.ray_cluster.conftest import actor_processes

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_session", "no_leaks")]


@pytest.fixture
def start_driver(run_dir):
    """Starts a driver as a terminal would, in a process group of its own; ends what is left of it."""
    started = []

    def start(address: str) -> subprocess.Popen:
        # A Ray of its own gets a token of its own.
        hidden = "RAY_AUTH" if address == "local" else "RAY_ADDRESS"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        command = [sys.executable, "-m", "tests.ray_cluster.driver_process", str(run_dir), address]
        with open(f"{run_dir}.errors", "wb") as errors:
            started.append(subprocess.Popen(command, env=environment, start_new_session=True, stderr=errors))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def _wait_until(is_so, timeout_s: float = 200) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _wait_until_saved(run: rundir.RunDir, driver: subprocess.Popen) -> None:
    """Returns when both running trials have a checkpoint."""
    saved = [run.trial(name).checkpoints / f"ckpt_{tiny.SAVE_EVERY}" for name in ("0000", "0001")]
    _wait_until(lambda: all(folder.exists() for folder in saved) or driver.poll() is not None)


def _check_goes_on(run: rundir.RunDir) -> None:
    """Runs what is missing, and looks that no step is there twice."""
    results = ray_cluster.run(driver_process.plan(run.path))
    assert results.ok
    assert {row.step for row in results.rows} == {tiny.NUM_STEPS}
    for row in results.rows:
        events = rundir.read_events(run.trial(row.name).events)
        steps = [event["step"] for event in events if event["kind"] == "metrics"]
        assert steps == sorted(set(steps))


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)]
)
def test_a_signal_saves_the_running_trials_and_ends_the_ray_that_was_started(number, status, run_dir, start_driver):
    run = rundir.RunDir(run_dir)
    driver = start_driver("local")
    _wait_until_saved(run, driver)
    assert (run.path / ".ray_token").stat().st_mode & 0o777 == 0o600
    children = psutil.Process(driver.pid).children(recursive=True)
    words = " ".join(word for child in children for word in child.cmdline())
    ray_folder = re.findall(r"/tmp/kdr-\w+", words)[0]
    assert os.path.isdir(ray_folder)

    # A terminal, and whoever ends a job, sends it to the whole group.
    os.killpg(driver.pid, number)
    assert driver.wait(60) == status
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    assert [run.trial(f"{index:04d}").status() for index in range(3)] == ["preempted", "preempted", "queued"]
    assert not (run.path / ".ray_token").exists()
    assert not os.path.exists(ray_folder)
    if number == signal.SIGTERM:  # Of Ctrl-C it is shown by `test_stop.py`, without a driver of its own.
        _check_goes_on(run)


def test_a_driver_that_is_killed_on_a_joined_cluster_leaves_no_actor_there(run_dir, start_driver, ray_session):
    run = rundir.RunDir(run_dir)
    driver = start_driver(ray_session)
    _wait_until_saved(run, driver)
    driver.kill()
    driver.wait()
    _wait_until(lambda: not actor_processes(), timeout_s=30)
    assert [run.trial(f"{index:04d}").status() for index in range(3)] == ["running", "running", "queued"]
    _check_goes_on(run)


def _told(run: rundir.RunDir) -> str:
    """Returns the line with which a driver ended; what failed for the same reason may stand above it."""
    return pathlib.Path(f"{run.path}.errors").read_text().splitlines()[-1]


def test_a_run_that_is_moved_ends_its_driver_and_goes_on_where_it_is(run_dir, start_driver, ray_session):
    """F54: ghost folders where the run had been, and no end."""
    run, moved = rundir.RunDir(run_dir), rundir.RunDir(f"{run_dir}-moved")
    driver = start_driver(ray_session)
    _wait_until_saved(run, driver)
    run.path.rename(moved)
    assert driver.wait(60) == 1
    assert _told(run) == (
        f"error: {run.path}: was moved to {moved.path} while it ran. To go on: kdr sweep --resume={moved.path}"
    )
    _wait_until(lambda: not actor_processes(), timeout_s=30)
    assert not run.path.exists()
    _check_goes_on(moved)


def test_a_ray_that_loses_its_control_service_ends_its_driver_and_leaves_no_process(run_dir, start_driver):
    """F56: a minute, then pages of C++."""
    run = rundir.RunDir(run_dir)
    driver = start_driver("local")
    _wait_until_saved(run, driver)
    children = psutil.Process(driver.pid).children(recursive=True)
    (service,) = [child for child in children if child.name() == "gcs_server"]
    service.kill()
    assert driver.wait(45) == 1
    line = f"Ray: its gcs_server has ended, which it can't do without. To go on: kdr sweep --resume={run.path}"
    assert _told(run) == f"error: {line}"
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    _check_goes_on(run)
