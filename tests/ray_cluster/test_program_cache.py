"""Compiled programs are kept in the user's own cache folder, never in or beside a run."""

from __future__ import annotations

import os
import pathlib
import stat

import jax
import pytest

from ray_cluster.workers import program_cache


@pytest.fixture
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The user's cache folder, with no variable of JAX's own set."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    standing = jax.config.jax_compilation_cache_dir
    yield tmp_path / "kauldron-ray"
    jax.config.update("jax_compilation_cache_dir", standing)


def test_programs_are_kept_in_a_folder_that_is_the_users_alone(cache: pathlib.Path) -> None:
    """F58: the cache lies in the user's cache folder, whatever the run is, and nobody else may write there."""
    program_cache.use_program_cache(jax, "cpu")
    assert pathlib.Path(jax.config.jax_compilation_cache_dir).parent == cache / "programs"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    cache.chmod(0o777)
    program_cache.use_program_cache(jax, "cpu")
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_the_variable_of_jax_wins(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standing = jax.config.jax_compilation_cache_dir
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/somewhere")
    program_cache.use_program_cache(jax, "cpu")
    assert jax.config.jax_compilation_cache_dir == standing
    assert not cache.exists()


def test_a_folder_that_leads_elsewhere_or_cannot_be_made_is_no_cache(
    cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F58: a program that somebody else may have put there is never loaded."""
    (cache.parent / "theirs").mkdir()
    cache.symlink_to(cache.parent / "theirs")
    assert program_cache.private_folder("programs") is None
    (cache.parent / "a-file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent / "a-file"))
    assert program_cache.private_folder("programs") is None


def test_the_oldest_programs_go_when_there_are_too_many(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_cache, "MAX_BYTES", 25)
    folder = program_cache.private_folder("programs")
    assert folder is not None
    for number in range(4):
        (folder / f"{number}-cache").write_bytes(b"x" * 10)
        os.utime(folder / f"{number}-cache", (number, number))
    program_cache._prune(folder)
    assert sorted(os.listdir(folder)) == ["2-cache", "3-cache"]
