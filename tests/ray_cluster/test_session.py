"""The folder of a local Ray goes with its driver, at the latest when the next one starts."""

import os

import pytest


@pytest.fixture
def session(monkeypatch, tmp_path):
    from ray_cluster import session

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
