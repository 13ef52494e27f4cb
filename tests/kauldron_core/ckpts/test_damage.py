"""A save that was killed, or damaged since, is never taken for the latest; the one before it stands."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron_core import ckpts
from kauldron_core.errors import ConfigError
from tests.kauldron_core.ckpts import states

SOMEBODY = 65534


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    workdir = tmp_path_factory.mktemp("saved")
    states.save(workdir, 3, 8)
    return workdir


@pytest.fixture
def workdir(saved: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A run with whole checkpoints at 3 and 8."""
    return pathlib.Path(shutil.copytree(saved, tmp_path / "run"))


def _arrays(path: pathlib.Path) -> list[pathlib.Path]:
    return [file for file in (path / "state").rglob("d/*") if file.is_file()]


def _cut_arrays(path: pathlib.Path) -> None:
    for file in _arrays(path):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _empty_arrays(path: pathlib.Path) -> None:
    for file in _arrays(path):
        file.write_bytes(b"")


def _lose_arrays(path: pathlib.Path) -> None:
    for file in _arrays(path):
        file.unlink()


def _lose_manifest(path: pathlib.Path) -> None:
    (path / "state" / "manifest.ocdbt").unlink()


def _lose_tree(path: pathlib.Path) -> None:
    (path / "state" / "_METADATA").unlink()


def _lose_metadata(path: pathlib.Path) -> None:
    shutil.rmtree(path / "metadata")


def _cut_metadata(path: pathlib.Path) -> None:
    (path / "metadata" / "metadata").write_text('{"state": ')


def _empty_metadata(path: pathlib.Path) -> None:
    (path / "metadata" / "metadata").write_text("[]")


def _cut_data(path: pathlib.Path) -> None:
    (path / "data" / "metadata").write_text("{")


def _empty_part(path: pathlib.Path) -> None:
    shutil.rmtree(path / "state")
    (path / "state").mkdir()


def _part_is_a_file(path: pathlib.Path) -> None:
    shutil.rmtree(path / "state")
    (path / "state").write_text("")


DAMAGES = [
    _cut_arrays,
    _empty_arrays,
    _lose_arrays,
    _lose_manifest,
    _lose_tree,
    _lose_metadata,
    _cut_metadata,
    _empty_metadata,
    _cut_data,
    _empty_part,
    _part_is_a_file,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_reported_and_set_aside_and_the_one_before_is_used(
    workdir: pathlib.Path, damage: Callable[[pathlib.Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """C04: damage is reported and set aside and the one before is used."""
    folder = workdir / "checkpoints"
    damage(folder / "ckpt_8")
    checkpointer = ckpts.Checkpointer(workdir=workdir)
    found = checkpointer.load(states.train_state())
    assert (found.step, found.damaged_steps) == (3, (8,))
    assert "ckpt_8: damaged" in caplog.text
    with pytest.raises(ckpts.DamagedCheckpoint, match="ckpt_8: damaged"):
        checkpointer.load(states.train_state(), step=8)
    checkpointer.set_aside(8)
    assert sorted(path.name for path in folder.glob("ckpt_*")) == ["ckpt_3", "ckpt_8.damaged-1"]
    assert checkpointer.all_steps == [3]


@pytest.mark.parametrize("damage", DAMAGES)
def test_verify_finds_it(workdir: pathlib.Path, damage: Callable[[pathlib.Path], None]) -> None:
    path = workdir / "checkpoints" / "ckpt_8"
    assert ckpts.verify(path) == []
    damage(path)
    assert ckpts.verify(path)


def test_one_flipped_bit_is_found_by_verify_and_never_loaded(tmp_path: pathlib.Path) -> None:
    noise = {"noise": jnp.asarray(np.random.default_rng(0).random(5_000, np.float32)), "key": jax.random.key(1)}
    checkpointer = ckpts.Checkpointer(workdir=tmp_path)
    checkpointer.save(noise, step=1)
    checkpointer.close()
    path = tmp_path / "checkpoints" / "ckpt_1"
    assert ckpts.verify(path) == []
    largest = max(_arrays(path), key=lambda file: file.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)
    with pytest.raises(ckpts.DamagedCheckpoint, match="other bytes than were saved"):
        checkpointer.load(noise)
    [line] = ckpts.verify(path)
    assert line == f"{largest.relative_to(path)}: other bytes than were saved"


def test_verify_says_what_is_no_checkpoint(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ckpt_4").mkdir()
    assert ckpts.verify(tmp_path / "ckpt_4")[0].startswith("not a whole checkpoint")
    assert ckpts.verify(tmp_path / "ckpt_5") == ["there is no such folder"]


def test_what_is_set_aside_twice_is_kept_twice(workdir: pathlib.Path) -> None:
    checkpointer = ckpts.Checkpointer(workdir=workdir)
    checkpointer.set_aside(8)
    states.save(workdir, 8)
    checkpointer.set_aside(8)
    names = sorted(path.name for path in (workdir / "checkpoints").glob("ckpt_8*"))
    assert names == ["ckpt_8.damaged-1", "ckpt_8.damaged-2"]


@pytest.mark.parametrize("kind", ["empty folder", "file", "folder of another program"])
def test_what_is_no_checkpoint_is_passed_over_and_makes_way(
    workdir: pathlib.Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = workdir / "checkpoints" / "ckpt_12"
    if kind == "file":
        place.write_text("notes")
    else:
        place.mkdir()
    if kind == "folder of another program":
        (place / "weights.npz").write_text("notes")
    assert ckpts.Checkpointer(workdir=workdir).load(states.train_state()).step == 8
    assert "ckpt_12: not a whole checkpoint, it is passed over for the one at step 8" in caplog.text
    checkpointer = states.save(workdir, 12, max_to_keep=1)
    assert checkpointer.all_steps == [12]
    aside = place.with_name("ckpt_12.damaged-1")
    assert aside.exists()
    if kind != "empty folder":
        assert (aside if kind == "file" else aside / "weights.npz").read_text() == "notes"


@contextlib.contextmanager
def _as_somebody() -> Iterator[pathlib.Path]:
    """A folder of a user to whom permissions apply; they don't to root."""
    folder = pathlib.Path(tempfile.mkdtemp())
    uid = os.geteuid()
    if uid == 0:
        os.chown(folder, SOMEBODY, SOMEBODY)
        os.seteuid(SOMEBODY)
    try:
        yield folder
    finally:
        os.seteuid(uid)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o700)
        shutil.rmtree(folder)


@pytest.mark.parametrize("place", ["", "state", "state/d", "metadata"])
def test_a_checkpoint_that_may_not_be_read_is_not_passed_over_in_silence(place: str) -> None:
    """It may be whole: training again from an older one would throw work away."""
    with _as_somebody() as workdir:
        checkpointer = states.save(workdir, 3, 8)
        checkpointer.close()
        (workdir / "checkpoints" / "ckpt_8" / place).chmod(0)
        with pytest.raises(ConfigError, match="ckpt_8: may not be read by this user; change its permissions"):
            checkpointer.load(states.train_state())
        assert ckpts.load(workdir / "checkpoints", states.train_state(), step=3).step == 3


FEW_FILES = """
import contextlib, os, resource, sys
import jax.numpy as jnp
from kauldron_core import ckpts

checkpointer = ckpts.Checkpointer(workdir=sys.argv[1])
state = {"w": jnp.ones(3)}
for step in (3, 8):
    checkpointer.save(state, step=step)
checkpointer.close()
checkpointer.load(state)
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
for files_left in range(12):
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limit[1]))
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.dup(0))
    for _ in range(files_left):
        os.close(taken.pop())
    try:
        found = checkpointer.load(state).step
    except Exception as error:
        found = type(error).__name__
    for descriptor in taken:
        os.close(descriptor)
    print(found)
"""


@pytest.mark.process
def test_what_this_process_lacks_is_no_damage(tmp_path: pathlib.Path) -> None:
    """Whoever can't open enough files must not train again from an older checkpoint."""
    ended = subprocess.run(
        [sys.executable, "-c", FEW_FILES, str(tmp_path)], capture_output=True, text=True, timeout=100, check=False
    )
    found = ended.stdout.split()
    assert len(found) == 12, ended.stderr
    assert set(found) <= {"8", "OSError", "ValueError", "XlaRuntimeError", "JaxRuntimeError"}, found
    assert found[0] != "8"
    assert found[-1] == "8", ended.stderr


def test_a_checkpoint_that_is_removed_while_it_is_read_is_looked_for_again(
    workdir: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader has listed step 8; while it compares shapes the trainer removes that one."""
    folder = workdir / "checkpoints"

    class Slow:
        """The shape of an array; whoever asks for it gives the trainer time."""

        dtype = np.dtype(np.int32)

        @property
        def shape(self) -> tuple[int, ...]:
            if (folder / "ckpt_8").exists():
                (folder / "ckpt_8").rename(folder / "ckpt_8.removed-x")
            return ()

    template: Any = states.train_state().replace(step=Slow())
    found = ckpts.load(folder, template)
    assert (found.step, found.damaged_steps) == (3, ())
    assert int(found.state.step) == 0
    assert "damaged" not in caplog.text


def test_a_folder_that_may_not_be_written_fails_the_save_by_name() -> None:
    with _as_somebody() as workdir:
        checkpointer = states.save(workdir, 3)
        (workdir / "checkpoints").chmod(0o500)
        with pytest.raises(ckpts.SaveFailed, match=r"ckpt_8: the checkpoint could not be saved: .*ermission denied"):
            checkpointer.save(states.train_state(8), step=8)
        assert checkpointer.all_steps == [3]


def test_a_full_disk_fails_the_next_save_and_the_earlier_ones_stand(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C08: a full disk fails the next save and the earlier ones stand."""
    noise = {"noise": jnp.asarray(np.random.default_rng(0).random(200_000, np.float32))}
    checkpointer = ckpts.Checkpointer(workdir=tmp_path, max_to_keep=2)
    for step in (1, 2):
        checkpointer.save(noise, step=step)
    checkpointer.wait()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        checkpointer.save(noise, step=3)
        with pytest.raises(ckpts.SaveFailed, match=r"ckpt_3: the checkpoint could not be saved: .*File too large"):
            checkpointer.save(noise, step=4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [record for record in caplog.records if record.exc_info], "it is told once, by the error"
    assert checkpointer.all_steps == [1, 2]
    assert checkpointer.load(noise).step == 2
    for step in (5, 6):
        checkpointer.save(noise, step=step)
        checkpointer.wait()
        checkpointer.finished()
    assert checkpointer.all_steps == [5, 6]
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("ckpt_*")) == ["ckpt_5", "ckpt_6"]


KILLED_WHILE_SAVING = """
import os, pathlib, signal, sys, threading, time
import jax
import jax.numpy as jnp
from kauldron_core import ckpts

checkpointer = ckpts.Checkpointer(workdir=sys.argv[1])
state = {"w": jnp.ones(3_000_000)}
checkpointer.save(state, step=1)
checkpointer.wait()

def kill():
    while not list(pathlib.Path(sys.argv[1]).glob("checkpoints/ckpt_2.orbax*")):
        time.sleep(0.0005)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=kill).start()
checkpointer.save(state, step=2)
checkpointer.wait()
time.sleep(5)
"""


@pytest.mark.process
def test_a_save_that_was_killed_is_no_checkpoint_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """C02: a save that was killed is no checkpoint and leaves nothing."""
    ended = subprocess.run([sys.executable, "-c", KILLED_WHILE_SAVING, str(tmp_path)], timeout=100, check=False)
    assert ended.returncode == -signal.SIGKILL
    folder = tmp_path / "checkpoints"
    foreign = folder / "ckpt_7.orbax-checkpoint-tmp"
    foreign.mkdir()
    checkpointer = ckpts.Checkpointer(workdir=tmp_path)
    state = {"w": jnp.ones(3_000_000)}
    assert checkpointer.load(state).step == 1
    checkpointer.save(state, step=3)
    checkpointer.wait()
    assert sorted(path.name for path in folder.glob("ckpt_*")) == ["ckpt_1", "ckpt_3", foreign.name]
