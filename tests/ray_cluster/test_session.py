"""The folder of a local Ray goes with its driver, at the latest when the next one starts."""

import os
import pathlib
import socket
import stat
import time

import pytest


@pytest.fixture
def session(monkeypatch, tmp_path):
    from ray_cluster.cluster import session

    monkeypatch.setattr(session, "_TEMP_ROOT", str(tmp_path))
    return session


def _folder(tmp_path, name: str) -> str:
    folder = tmp_path / name
    folder.mkdir()
    return str(folder)


def test_the_folder_of_a_killed_driver_is_removed_and_a_living_ones_is_not(session, tmp_path):
    killed, living, foreign = (_folder(tmp_path, name) for name in ("kdr-killed", "kdr-living", "kdr-of-somebody"))
    os.close(session._mark_in_use(killed))
    descriptor = session._mark_in_use(living)
    session._remove_leftovers()
    assert sorted(os.listdir(tmp_path)) == sorted(os.path.basename(path) for path in (living, foreign))
    os.close(descriptor)


@pytest.mark.cluster
@pytest.mark.usefixtures("ray_session")
def test_nobody_else_may_look_into_the_folder_of_a_local_ray():
    """F57: Ray opens the folder that it is given to everybody, so it lies in one that is its owner's alone."""
    import ray

    session_dir = pathlib.Path(ray._private.worker._global_node.get_session_dir_path())
    private = next(folder for folder in session_dir.parents if folder.name.startswith("kdr-"))
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert private.parent == pathlib.Path("/tmp")


def test_a_control_service_that_is_silent_for_long_is_lost_and_one_that_comes_back_is_not(session):
    """F56: that of a joined cluster is no process of ours; it is known by whether it answers."""
    with socket.create_server(("127.0.0.1", 0)) as service:
        address = f"127.0.0.1:{service.getsockname()[1]}"
        patient = session.Listener(address, knock_every_s=0.01, silence_s=1e6)
        hasty = session.Listener(address, knock_every_s=0.01, silence_s=0.0)
        assert [_lost(patient), _lost(hasty)] == [None, None]
    assert [_lost(hasty), _lost(hasty)] == [None, None], "one that was suspended has not looked for long"
    assert _lost(hasty) == f"control service at {address}"
    assert [_lost(patient) for _ in range(4)] == [None] * 4


def _lost(listener) -> str | None:
    time.sleep(0.03)
    return listener.lost()
