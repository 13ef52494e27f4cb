"""Checkpoints come back bit for bit, or say why they do not."""

from __future__ import annotations

import collections
import contextlib
import json
import pathlib
import resource
import shutil
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron_core import ckpts, rundir
from kauldron_core.errors import ConfigError

Empty = collections.namedtuple("Empty", ())


def _state(value: float = 1.0) -> dict[str, Any]:
    params = {"dense": {"kernel": jnp.full((3, 2), value, jnp.float32), "bias": jnp.arange(2, dtype=jnp.int32)}}
    return {"step": jnp.int32(5), "params": params, "half": jnp.ones((2,), jnp.bfloat16) * value}


def _checkpointer(workdir: pathlib.Path, **fields: Any) -> ckpts.Checkpointer:
    return ckpts.Checkpointer(workdir=workdir, **fields)


def _save(checkpointer: ckpts.Checkpointer, *steps: int) -> None:
    for step in steps:
        checkpointer.save(_state(step), {"next": step}, step=step)
        checkpointer.wait()
        checkpointer.finished()


def _equal(left: Any, right: Any) -> bool:
    same = jax.tree.map(lambda a, b: a.dtype == b.dtype and bool(np.array_equal(a, b)), left, right)
    return jax.tree.structure(left) == jax.tree.structure(right) and all(jax.tree.leaves(same))


@contextlib.contextmanager
def _small_files_only(limit: int) -> Iterator[None]:
    """The operating system refuses to write files larger than `limit` bytes, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _noise(size: int = 200_000) -> dict[str, Any]:
    """Returns a state that does not compress into small files."""
    return {"noise": jnp.asarray(np.random.default_rng(0).random(size, np.float32))}


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: pathlib.Path) -> None:
    checkpointer = _checkpointer(tmp_path)
    _save(checkpointer, 3, 8)
    found = checkpointer.load(jax.eval_shape(lambda: _state()))
    assert (found.step, found.data_state, found.damaged_steps) == (8, {"next": 8}, ())
    assert _equal(found.state, _state(8))
    assert _equal(checkpointer.restore(_state(), step=3), _state(3))
    assert ckpts.all_steps(tmp_path / "checkpoints") == [3, 8]


def test_the_state_may_be_donated_as_soon_as_save_returns(tmp_path: pathlib.Path) -> None:
    checkpointer = _checkpointer(tmp_path)
    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    array = jax.block_until_ready(jnp.zeros(500_000))
    checkpointer.save({"a": array}, step=1)
    for _ in range(20):
        array = add(array)
    jax.block_until_ready(array)
    checkpointer.wait()
    assert not np.any(checkpointer.restore({"a": array})["a"])


@pytest.mark.parametrize(
    "state",
    [
        {"a": jnp.ones(2), "empty": (), "named": Empty(), "none": None, "dict": {}},
        optax.chain(optax.clip(1.0), optax.adam(1e-3), optax.identity()).init({"w": jnp.ones(3), "frozen": {}}),
    ],
)
def test_empty_tuples_come_back_without_a_warning(tmp_path: pathlib.Path, state: Any) -> None:
    """C14: empty tuples come back without a warning."""
    checkpointer = _checkpointer(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpointer.save(state, step=1)
        checkpointer.wait()
        assert _equal(checkpointer.restore(jax.eval_shape(lambda: state)), state)


def test_temporary_and_foreign_names_are_never_the_latest(tmp_path: pathlib.Path) -> None:
    """C02: temporary and foreign names are never the latest."""
    checkpointer = _checkpointer(tmp_path)
    _save(checkpointer, 3)
    whole = tmp_path / "checkpoints" / "ckpt_3"
    for name in (
        "ckpt_9.orbax-checkpoint-tmp",
        "ckpt_9.orbax-checkpoint-tmp-17",
        "ckpt_09",
        "9",
        "ckpt_x",
        "my_ckpt_9",
    ):
        shutil.copytree(whole, whole.with_name(name))
    (whole.parent / "ckpt_10").mkdir()
    (whole.parent / "ckpt_11").touch()
    assert checkpointer.all_steps == [3]
    assert checkpointer.load(_state()).step == 3


def _remove_part(path: pathlib.Path) -> None:
    shutil.rmtree(path / "data")


def test_a_run_with_damaged_checkpoints_only_never_starts_over(tmp_path: pathlib.Path) -> None:
    checkpointer = _checkpointer(tmp_path)
    _save(checkpointer, 3)
    _remove_part(tmp_path / "checkpoints" / "ckpt_3")
    with pytest.raises(ckpts.DamagedCheckpoint):
        checkpointer.restore(_state(), noop_if_missing=True)


def test_a_failed_last_save_is_an_error_that_names_the_step(tmp_path: pathlib.Path) -> None:
    """C06: a failed last save is an error that names the step."""
    checkpointer = _checkpointer(tmp_path)
    with _small_files_only(100_000):
        checkpointer.save(_noise(), step=7)
        with pytest.raises(ckpts.SaveFailed, match="ckpt_7: the checkpoint could not be saved"):
            checkpointer.wait()
    assert checkpointer.all_steps == []


@pytest.mark.parametrize("step", [0, 5, 10])
def test_saving_below_a_later_step_is_refused(tmp_path: pathlib.Path, step: int) -> None:
    """C10: saving below a later step is refused."""
    checkpointer = _checkpointer(tmp_path)
    _save(checkpointer, 10)
    with pytest.raises(ConfigError, match=f"can't save step {step}, there is a checkpoint at step 10"):
        checkpointer.save(_state(), step=step)


def test_a_checkpoint_that_does_not_exist_is_an_error_unless_asked_for(tmp_path: pathlib.Path) -> None:
    """C12: a checkpoint that does not exist is an error unless asked for."""
    checkpointer = _checkpointer(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        checkpointer.restore(_state())
    assert checkpointer.restore("fresh", noop_if_missing=True) == "fresh"
    _save(checkpointer, 3)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint at step 4. Available: 3"):
        checkpointer.restore(_state(), step=4, noop_if_missing=True)


def test_max_to_keep_keeps_the_newest(tmp_path: pathlib.Path) -> None:
    checkpointer = _checkpointer(tmp_path, max_to_keep=2)
    _save(checkpointer, 1, 2, 3, 4)
    assert checkpointer.all_steps == [3, 4]
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("ckpt_*")) == ["ckpt_3", "ckpt_4"]


def test_only_what_was_written_here_is_ever_removed(tmp_path: pathlib.Path) -> None:
    """C16: only what was written here is ever removed."""
    source, target = _checkpointer(tmp_path / "source"), _checkpointer(tmp_path / "target", max_to_keep=1)
    _save(source, 1, 2)
    copy = tmp_path / "target" / "checkpoints" / "ckpt_2"
    shutil.copytree(tmp_path / "source" / "checkpoints" / "ckpt_2", copy)
    assert target.load(_state()).step == 2
    _save(target, 3, 4)
    assert target.all_steps == [2, 4]
    assert source.all_steps == [1, 2]


def test_what_was_half_removed_goes_with_the_next_save(tmp_path: pathlib.Path) -> None:
    checkpointer = _checkpointer(tmp_path, max_to_keep=1)
    _save(checkpointer, 1, 2)
    folder = tmp_path / "checkpoints"
    shutil.copytree(folder / "ckpt_2", folder / f"ckpt_1.removed-{(folder / '.owner').read_text()}")
    shutil.copytree(folder / "ckpt_2", folder / "ckpt_1.removed-by-hand")
    _save(checkpointer, 3)
    assert sorted(path.name for path in folder.glob("ckpt_*")) == ["ckpt_1.removed-by-hand", "ckpt_3"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s["params"]["dense"].update(kernel=jnp.ones((4, 2))),
            r"params.dense.kernel: float32\[3,2\] in the ",
        ),
        (lambda s: s["params"]["dense"].update(kernel=jnp.ones((3, 2), jnp.int32)), r"int32\[3,2\] in the config"),
        (lambda s: s["params"].pop("dense"), "params.dense.bias: only in the checkpoint"),
        (lambda s: s["params"].update(more=jnp.ones(1)), "params.more: not in the checkpoint"),
    ],
)
def test_another_model_is_refused_and_never_taken_for_damage(tmp_path: pathlib.Path, change: Any, message: str) -> None:
    checkpointer = _checkpointer(tmp_path)
    _save(checkpointer, 1, 2)
    template = _state()
    change(template)
    with pytest.raises(ckpts.StateMismatch, match=message):
        checkpointer.load(template)


def test_commits_are_told_once_they_are_on_disk(tmp_path: pathlib.Path) -> None:
    checkpointer = _checkpointer(tmp_path)
    assert checkpointer.finished() == ()
    checkpointer.save(_state(), step=1)
    checkpointer.wait()
    assert checkpointer.finished() == (1,)
    assert checkpointer.finished() == ()
    checkpointer.close()
    _save(checkpointer, 2)
    assert checkpointer.all_steps == [1, 2]


def test_reading_changes_nothing_in_the_folder(tmp_path: pathlib.Path) -> None:
    _save(_checkpointer(tmp_path), 1)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    ckpts.load(tmp_path / "checkpoints", _state())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_the_metadata_says_what_is_inside(tmp_path: pathlib.Path) -> None:
    _save(_checkpointer(tmp_path), 1)
    metadata = json.loads((tmp_path / "checkpoints" / "ckpt_1" / "metadata" / "metadata").read_text())
    assert metadata["step"] == 1
    assert metadata["state"]["params.dense.kernel"] == "float32[3,2]"


@pytest.mark.parametrize("fields", [{"save_interval_steps": 0}, {"max_to_keep": 0}])
def test_settings_that_make_no_sense_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="must be at least 1"):
        ckpts.Checkpointer(**fields)


def test_a_checkpointer_without_workdir_says_so() -> None:
    with pytest.raises(ConfigError, match=r"checkpointer\.workdir: unset"):
        ckpts.Checkpointer().load(_state())


def test_a_folder_that_orbax_would_take_for_a_pattern_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"holds '\[', a wildcard to Orbax. Usable: .*runs-1-"):
        _ = ckpts.Checkpointer(workdir=tmp_path / "runs[1]").directory
    with pytest.raises(ConfigError, match="wildcard"):
        rundir.RunDir.create(tmp_path / "run?")
