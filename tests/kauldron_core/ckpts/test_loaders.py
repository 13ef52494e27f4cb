"""A run starts from another run's checkpoint: all of it, or parts under other names."""

from __future__ import annotations

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from kauldron_core import ckpts, kd, konfig
from kauldron_core.ckpts import globs
from kauldron_core.errors import ConfigError
from kauldron_core.forward import TrainState
from tests.kauldron_core.ckpts import states


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run with checkpoints at 3 and 8, each array filled with the step."""
    workdir = tmp_path_factory.mktemp("source")
    states.save(workdir, 3, 8)
    return workdir


def _partial(source: pathlib.Path, **fields: Any) -> ckpts.PartialKauldronLoader:
    return ckpts.PartialKauldronLoader(workdir=source, **fields)


def _renamed(state: TrainState) -> TrainState:
    """Returns the state with the encoder called `enc`, and a layer that the checkpoint lacks."""
    params = {"enc": state.params["encoder"], "new": {"bias": jnp.zeros(7)}}
    return state.replace(params=params, opt_state=optax.sgd(0.1).init(params))


def test_a_whole_model_starts_where_the_other_run_was(source: pathlib.Path) -> None:
    fresh = states.train_state(0)
    state = ckpts.SimpleCheckpointLoader(workdir=source).transform(fresh)
    assert states.equal(
        (state.params, state.collections), (states.train_state(8).params, states.train_state(8).collections)
    )
    assert states.equal(state.opt_state, fresh.opt_state)
    assert int(state.step) == 0
    state = ckpts.SimpleCheckpointLoader(workdir=source, step=3, load_opt_state=True).transform(fresh)
    assert states.equal(state, states.train_state(3))


def test_the_optimizer_may_start_from_what_was_loaded(source: pathlib.Path) -> None:
    """Without an optimizer's state, `transform` leaves it to `transform_after_optimizer`."""
    loader = ckpts.SimpleCheckpointLoader(workdir=source, load_opt_state=True)
    fresh = states.train_state(0)
    state = loader.transform(fresh.replace(opt_state=None))
    assert state.opt_state is None
    assert states.equal(state.params, states.train_state(8).params)
    state = loader.transform_after_optimizer(state.replace(opt_state=fresh.opt_state))
    assert states.equal(state, states.train_state(8))


class Doubled(ckpts.InitTransform):
    """A transform as a user writes it."""

    def transform(self, state: Any) -> Any:
        return state.replace(params=jax.tree.map(lambda leaf: 2 * leaf, state.params))


def test_a_users_own_transform_needs_no_more_than_transform() -> None:
    """F59: a subclass that left out what comes after the optimizer gave None for a state."""
    fresh = states.train_state(0)
    assert Doubled().transform_after_optimizer(fresh) is fresh
    several = ckpts.MultiTransform(twice=Doubled())
    assert states.equal(several.transform_after_optimizer(several.transform(fresh)).opt_state, fresh.opt_state)


def test_parts_are_taken_under_other_names(source: pathlib.Path) -> None:
    fresh = _renamed(states.train_state(0))
    loader = _partial(source, new_to_old={"params.enc": "params.encoder", "collections": "collections"}, step=3)
    state = loader.transform(fresh)
    assert states.equal(state.params["enc"], states.train_state(3).params["encoder"])
    assert states.equal(state.params["new"], fresh.params["new"])
    assert states.equal(state.collections, states.train_state(3).collections)


@pytest.mark.parametrize("path", ["opt_state[1][0].mu", "opt_state.1.0.mu"])
def test_a_part_of_the_optimizer_is_taken(source: pathlib.Path, path: str) -> None:
    state = _partial(source, new_to_old={path: path}).transform(states.train_state(0))
    assert states.equal(state.opt_state[1][0].mu, states.train_state(8).opt_state[1][0].mu)
    assert states.equal(state.opt_state[1][0].nu, states.train_state(0).opt_state[1][0].nu)


def test_an_array_may_be_named_itself(source: pathlib.Path) -> None:
    state = _partial(source, new_to_old={"params.head[0]": "params.head[0]"}).transform(states.train_state(0))
    assert states.equal(state.params["head"], states.train_state(8).params["head"])
    assert states.equal(state.params["encoder"], states.train_state(0).params["encoder"])


@pytest.mark.parametrize(
    ("fields", "loaded", "kept"),
    [
        ({"ignore": ("**.bias", "params.head.**")}, "kernel", "bias"),
        ({"ignore": ("encoder.kernel", "head.*")}, "bias", "kernel"),
    ],
)
def test_ignored_arrays_stay_as_the_model_made_them(
    source: pathlib.Path, fields: dict[str, Any], loaded: str, kept: str
) -> None:
    fresh = states.train_state(0)
    state = _partial(source, new_to_old={"params": "params"}, **fields).transform(fresh)
    assert states.equal(state.params["encoder"][loaded], states.train_state(8).params["encoder"][loaded])
    assert states.equal(state.params["encoder"][kept], fresh.params["encoder"][kept])
    assert states.equal(state.params["head"], fresh.params["head"])


def test_missing_and_extra_arrays_are_errors_unless_globbed_away(source: pathlib.Path) -> None:
    fresh = _renamed(states.train_state(0))
    fresh = fresh.replace(params={"encoder": fresh.params["enc"], "new": fresh.params["new"]})
    with pytest.raises(ckpts.StateMismatch) as refused:
        _partial(source).transform(fresh)
    assert "params.new.bias: not in the checkpoint" in str(refused.value)
    assert "params.head.0: only in the checkpoint" in str(refused.value)
    with pytest.raises(ckpts.StateMismatch, match="only in the checkpoint") as refused:
        _partial(source, ignore_model_keys="params.new.**").transform(fresh)
    assert "not in the checkpoint" not in str(refused.value)
    loader = _partial(source, ignore_model_keys=("new.*",), ignore_restored_keys=("head.**",))
    assert states.equal(loader.transform(fresh).params["encoder"], states.train_state(8).params["encoder"])


def test_nothing_is_cast_or_cut(source: pathlib.Path) -> None:
    fresh = states.train_state(0)
    fresh.params["encoder"]["bias"] = jnp.zeros(3)
    with pytest.raises(
        ckpts.StateMismatch, match=r"params\.encoder\.bias: bfloat16\[3\] in the ch.*, float32\[3\] in the"
    ):
        _partial(source).transform(fresh)
    with pytest.raises(
        ckpts.StateMismatch, match=r"params\.encoder\.kernel: float32\[4,3\] in the ch.*, float32\[4,5\]"
    ):
        _partial(source).transform(states.train_state(0, width=5))


def test_a_long_difference_is_cut(tmp_path: pathlib.Path) -> None:
    checkpointer = ckpts.Checkpointer(workdir=tmp_path)
    checkpointer.save({"params": {f"layer{i}": jnp.ones(1) for i in range(400)}}, step=1)
    checkpointer.wait()
    with pytest.raises(ckpts.StateMismatch, match=r"; and 389 more\.") as refused:
        _partial(tmp_path, new_to_old={"params": "params"}).transform({"params": {"other": jnp.ones(1)}})
    assert len(str(refused.value)) < 1000


def test_a_wrong_path_is_told_with_the_closest(source: pathlib.Path) -> None:
    fresh = states.train_state(0)
    with pytest.raises(
        ConfigError, match=r"unknown path in the checkpoint 'params\.encodr'\. Did you mean 'params\.encoder'"
    ):
        _partial(source, new_to_old={"params.encoder": "params.encodr"}).transform(fresh)
    with pytest.raises(ConfigError, match=r"unknown path in the state 'params\.hed'\. Did you mean 'params\.head'"):
        _partial(source, new_to_old={"params.hed": "params.head"}).transform(fresh)
    with pytest.raises(ConfigError, match="new_to_old: empty"):
        _partial(source, new_to_old={})


def test_the_checkpoint_is_found_by_any_of_its_folders(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """C12: the checkpoint is found by any of its folders."""
    checkpoints = source / "checkpoints"
    for place in (source, checkpoints):
        assert ckpts.find_checkpoint(place).name == "ckpt_8"
        assert ckpts.find_checkpoint(place, step=3).name == "ckpt_3"
        with pytest.raises(ckpts.MissingCheckpoint, match=r"no checkpoint at step 4\. Available: 3, 8"):
            ckpts.find_checkpoint(place, step=4)
    assert ckpts.find_checkpoint(checkpoints / "ckpt_3").name == "ckpt_3"
    with pytest.raises(ConfigError, match="Leave one of them out"):
        ckpts.find_checkpoint(checkpoints / "ckpt_3", step=8)
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        ckpts.find_checkpoint(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        ckpts.find_checkpoint(tmp_path / "nowhere")


def test_the_source_is_only_read(source: pathlib.Path) -> None:
    """C16: the source is only read."""
    before = {path: path.stat().st_mtime_ns for path in source.rglob("*")}
    ckpts.SimpleCheckpointLoader(workdir=source, load_opt_state=True).transform(states.train_state(0))
    assert {path: path.stat().st_mtime_ns for path in source.rglob("*")} == before


def test_what_is_loaded_lies_where_the_fresh_state_lies(source: pathlib.Path) -> None:
    device = jax.devices()[-1]
    fresh = jax.device_put(states.train_state(0), device)
    state = ckpts.SimpleCheckpointLoader(workdir=source).transform(fresh)
    assert state.params["encoder"]["kernel"].sharding == fresh.params["encoder"]["kernel"].sharding


def test_several_loaders_follow_each_other_and_name_the_one_that_failed(source: pathlib.Path) -> None:
    first = _partial(source, new_to_old={"params": "params"}, step=3)
    second = _partial(source, new_to_old={"params.encoder": "params.encoder"})
    state = ckpts.MultiTransform(first=first, second=second).transform(states.train_state(0))
    assert states.equal(state.params["head"], states.train_state(3).params["head"])
    assert states.equal(state.params["encoder"], states.train_state(8).params["encoder"])
    with pytest.raises(ckpts.StateMismatch) as refused:
        ckpts.MultiTransform(fine=first, bad=second).transform(states.train_state(0, width=5))
    assert refused.value.__notes__ == ["while applying init_transform.fine"]


def test_loaders_are_config_entries(source: pathlib.Path) -> None:
    with konfig.imports():
        from kauldron_core import kd as lazy
    cfg = lazy.ckpts.MultiTransform(
        enc=lazy.ckpts.PartialKauldronLoader(
            workdir=str(source), new_to_old={"params.encoder": "params.encoder"}, ignore=["**.bias"]
        ),
        head=lazy.ckpts.SimpleCheckpointLoader(workdir=str(source), step=3),
    )
    loader = konfig.resolve(konfig.from_json(konfig.to_json(cfg)))
    assert isinstance(loader, kd.ckpts.MultiTransform)
    assert states.equal(loader.transform(states.train_state(0)).params, states.train_state(3).params)


@pytest.mark.parametrize(
    ("pattern", "place", "expected"),
    [
        ("**", "a.b", True),
        ("*", "a.b", False),
        ("**.bias", "bias", True),
        ("**.bias", "a.b.bias", True),
        ("a.**.bias", "a.bias", True),
        ("a.*.bias", "a.bias", False),
        ("a[0]", "a.0", True),
        ("a", "a.b", False),
    ],
)
def test_globs(pattern: str, place: str, expected: bool) -> None:
    assert globs.matches(pattern, place) == expected
