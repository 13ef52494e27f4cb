"""Packs on eight devices. `test_pack_devices.py` runs this file in a process that has them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from kauldron_core import konfig, packs
from kauldron_core.errors import ConfigError
from kauldron_core.packs.planning import tracing
from kauldron_core.packs.running import placement
from kauldron_core.packs.running.programs import PackedPrograms
from kauldron_core.train.step.program import Outputs
from kauldron_core.train.step.source import step_source
from tests.kauldron_core.packs.test_packs import config

with konfig.imports():
    import optax

    from kauldron_core import kd

STEPS = 4


def configs(count: int, folder: Any = None, **overrides: Any) -> list[Any]:
    found = []
    for index in range(count):
        cfg = config(seed=index, num_train_steps=STEPS, model__dropout=0.0, **overrides)
        cfg.optimizer = optax.sgd(learning_rate=1e-2 * (index + 1))
        cfg.train_ds.seed = None
        if cfg.evals:
            cfg.evals.test.run = kd.evals.EveryNSteps(3, skip_first=True)
        if folder is not None:
            cfg.workdir = str(folder / str(index))
            cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=4)
        found.append(cfg)
    return found


def on(monkeypatch: Any, devices: int, trials: list[Any], **kwargs: Any) -> tuple[packs.Packed, list[Any]]:
    """Trains on the first devices only."""
    own = jax.devices()[:devices]
    monkeypatch.setattr(jax, "devices", lambda *args: own)
    monkeypatch.setattr(jax, "device_count", lambda *args: devices)
    training, events = packs.iter_train(trials, **kwargs), []
    try:
        while True:
            events.append(next(training))
    except StopIteration as end:
        return end.value, events
    finally:
        monkeypatch.undo()


def assert_alike(many: tuple[packs.Packed, list[Any]], one: tuple[packs.Packed, list[Any]]) -> None:
    # To rounding: how many trials a device has decides how its sums are made.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        jax.device_get(many[0].states),
        jax.device_get(one[0].states),
    )
    for mine, theirs in zip(*([e for e in each[1] if hasattr(e.event, "values")] for each in (many, one)), strict=True):
        assert (mine.member, mine.event.step) == (theirs.member, theirs.event.step)
        assert mine.event.values == pytest.approx(theirs.event.values, rel=1e-4)


def test_dealt_out_trials_learn_the_same_and_go_on_with_other_devices(tmp_path: Any, monkeypatch: Any) -> None:
    one = on(monkeypatch, 1, configs(15))
    packed, events = on(monkeypatch, 8, configs(15, tmp_path), folder=tmp_path / "pack")
    assert len(packed.states.step.devices()) == 8 and len(packed.states.step) == 15
    assert_alike((packed, [event for event in events if not hasattr(event.event, "status")]), one)
    # One that was saved on eight devices, in sixteen rows of which one is a ghost, goes on on one.
    trials = configs(15, tmp_path)
    for cfg in trials:
        cfg.num_train_steps = STEPS + 2
    longer, _ = on(monkeypatch, 1, trials, folder=tmp_path / "pack")
    assert longer.states.step.tolist() == [STEPS + 2] * 15
    trainer = konfig.resolve(trials[14])
    state = trainer.checkpointer.load(trainer.state_specs, step=STEPS).state
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(state), jax.device_get(packed.state_of(14)))


@pytest.mark.soak
def test_split_batches_give_the_same_losses(monkeypatch: Any) -> None:
    many, one = (on(monkeypatch, devices, configs(2, evals={})) for devices in (8, 1))
    assert len(many[0].states.step.devices()) == 8
    assert_alike(many, one)


def test_trials_that_are_split_over_devices_in_their_own_way_are_refused() -> None:
    trials = configs(2)
    for cfg in trials:
        cfg.sharding = kd.sharding.ShardingStrategy(params=kd.sharding.FSDPSharding())
    with pytest.raises(ConfigError, match="sharding splits it over devices in a way of its own"):
        packs.train(trials, packs.Pack((0, 1), ("optimizer.learning_rate", "seed")))


@pytest.mark.parametrize(("count", "parts"), [(8, 1), (2, 4)])
def test_a_step_takes_over_buffers_and_gives_what_it_gives_on_one_device(count: int, parts: int) -> None:
    trials, arguments = configs(count), ("optimizer.learning_rate",)
    source = step_source(trials[0], others=arguments)
    values = [tracing.values_of(cfg, arguments, num_steps=STEPS) for cfg in trials]
    batch = next(iter(konfig.resolve(trials[0]).train_ds))
    grid = placement.choose(count, num_devices=8, batch_size=16)
    assert (grid.num_devices, grid.batch_devices) == (8, parts)
    found = []
    for place in (grid, placement.Placement(count)):
        programs = PackedPrograms(
            lambda numbers: tracing.build(source, numbers, tables=()),
            arguments,
            has_own_batches=False,
            placement=place,
        )
        numbers = place.put_rows(tracing.stacked_arguments(values))
        states = programs.init(numbers, batch)
        placed = place.put_batch(batch, has_rows=False, is_stack=False)
        found.append(programs.call(Outputs(losses=True), size=1)(numbers, states, placed))
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(states))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), *map(jax.device_get, found))
