"""What a sweep stands on is watched: its run directory, and the Ray that was started for it."""

import shlex
import shutil
import threading

import pytest

from kauldron_core import rundir
from ray_cluster.driver.ground import Abandoned, Ground, RayGone, RunGone


@pytest.fixture
def run(tmp_path):
    return rundir.RunDir.create(tmp_path / "a run", {})


def _loss(run, change) -> Exception:
    """Returns what is told of a change while nobody writes."""
    heard = threading.Event()
    with pytest.raises((RunGone, RayGone)) as caught, Ground(run, lambda loss: heard.set()) as ground:
        change(ground)
        heard.wait(60)
        raise Abandoned
    return caught.value


def test_a_run_that_is_moved_is_told_with_the_command_that_goes_on_there(run, tmp_path):
    """F54: the sweep went on in ghost folders, and did not end."""
    place = tmp_path / "new place"
    loss = _loss(run, lambda _: run.path.rename(place))
    command = shlex.join(["kdr", "sweep", f"--resume={place}"])
    assert str(loss) == f"{run.path}: was moved to {place} while it ran. To go on: {command}"


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_run_that_is_removed_is_told_as_gone(run, is_made_again):
    """F54: the same, of a run of which nothing is left, or in whose place another one is."""

    def remove(_):
        shutil.rmtree(run)
        if is_made_again:
            rundir.RunDir.create(run.path, {})

    assert str(_loss(run, remove)).startswith(f"{run.path}: is gone; it was moved or removed while it ran.")


def test_an_error_that_comes_before_the_next_look_is_told_as_the_loss(run, tmp_path):
    """F54: a traceback of whoever writes next."""
    with pytest.raises(RunGone, match="was moved to"), Ground(run, lambda loss: None):
        run.path.rename(tmp_path / "new")
        run.write_sweep({})


def test_an_error_is_itself_while_everything_is_there(run):
    with pytest.raises(ZeroDivisionError), Ground(run, lambda loss: None):
        run.write_sweep({})
        raise ZeroDivisionError


def test_a_ray_that_lacks_a_process_is_told_with_the_command_that_goes_on(run):
    """F56: pages of C++ after a minute."""
    loss = _loss(run, lambda ground: ground.watch_ray(lambda: "gcs_server"))
    command = shlex.join(["kdr", "sweep", f"--resume={run.path}"])
    assert str(loss) == f"Ray: its gcs_server has ended, which it can't do without. To go on: {command}"
