"""A pack behaves as its trials would alone."""

from __future__ import annotations

import threading
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron_core import ckpts as kd_ckpts
from kauldron_core import konfig, kontext, packs, rundir
from kauldron_core.errors import ConfigError
from tests.kauldron_core import experiments

with konfig.imports():
    import optax

    from kauldron_core import kd
    from tests.kauldron_core.packs import test_packs as here

pytestmark = pytest.mark.slow


class Model(nn.Module):
    """An MLP whose type can be chosen."""

    x: kontext.Key = "batch.x"
    hidden: int = 8
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.hidden, param_dtype=self.dtype, dtype=self.dtype)(x)
        return nn.Dense(experiments.CLASSES, param_dtype=self.dtype, dtype=self.dtype)(jnp.tanh(x))


def config(**overrides: Any) -> Any:
    cfg = kd.train.Trainer(
        seed=0,
        num_train_steps=20,
        log_metrics_every=10,
        train_ds=kd.data.InMemoryPipeline(loader=experiments.load_points, batch_size=16, shuffle=True, seed=1),
        model=kd.nn.MLP(hidden=8, features=experiments.CLASSES, dropout=0.2, x="batch.x"),
        train_losses={
            "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds", labels="batch.label", weight=1.0)
        },
        train_metrics={"accuracy": kd.metrics.Accuracy(logits="preds", labels="batch.label")},
        optimizer=optax.adam(learning_rate=1e-2),
        checkpointer=None,
        evals={
            "test": kd.evals.Evaluator(
                run=kd.evals.Final(), ds=kd.data.InMemoryPipeline(loader=experiments.load_points, batch_size=16)
            )
        },
    )
    for path, value in overrides.items():
        place = path.split("__")
        node = cfg
        for part in place[:-1]:
            node = node[part]
        node[place[-1]] = value
    return cfg


def assert_like_alone(configs: list[Any], packed: packs.Packed, *, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    for index, cfg in enumerate(configs):
        alone = konfig.resolve(cfg).train()
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol),
            (alone.params, alone.opt_state, alone.step),
            (lambda state: (state.params, state.opt_state, state.step))(packed.state_of(index)),
        )


def test_trials_that_differ_in_numbers_train_in_one_program_with_their_own_events(tmp_path: Any) -> None:
    configs = [
        config(optimizer__learning_rate=rate, workdir=str(tmp_path / str(index)), seed=index)
        for index, rate in enumerate((1e-3, 1e-1))
    ]
    events = list(packs.iter_train(configs))
    for index, cfg in enumerate(configs):
        cfg.workdir = None
        alone = list(konfig.resolve(cfg).iter_train())
        own = [event.event for event in events if event.member == index]
        assert [(type(e).__name__, e.step) for e in own] == [(type(e).__name__, e.step) for e in alone]
        for mine, theirs in zip(own, alone, strict=True):
            for name, value in getattr(theirs, "values", {}).items():
                if not name.startswith("perf/"):
                    assert mine.values[name] == pytest.approx(value, rel=1e-4), name
        kinds = [event["kind"] for event in rundir.read_events(tmp_path / str(index) / "events")]
        assert kinds == ["metrics", "metrics", "metrics", "evaluated", "done"]


OPTIMIZERS = {
    "adamw": lambda x: optax.adamw(learning_rate=1e-2 * x, weight_decay=0.1 * x, b1=0.8 + 0.05 * x),
    "sgd": lambda x: optax.sgd(learning_rate=0.1 * x, momentum=0.5 * x),
    "lion": lambda x: optax.lion(learning_rate=1e-3 * x),
    "lamb": lambda x: optax.lamb(learning_rate=1e-2 * x),
    "adafactor": lambda x: optax.adafactor(learning_rate=1e-2 * x),
    "clipped": lambda x: optax.chain(optax.clip_by_global_norm(0.3 * x), optax.adam(learning_rate=1e-2)),
    "cosine": lambda x: optax.adam(learning_rate=optax.cosine_decay_schedule(init_value=1e-2 * x, decay_steps=20)),
    "warmup": lambda x: optax.adam(
        learning_rate=optax.warmup_cosine_decay_schedule(
            init_value=0.0, peak_value=1e-2 * x, warmup_steps=5, decay_steps=20
        )
    ),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "adamw" else [pytest.mark.soak]) for name in OPTIMIZERS],
)
def test_packed_and_alone_are_equal_in_64_bits(name: str) -> None:
    with jax.enable_x64(True):
        configs = [
            config(
                optimizer=OPTIMIZERS[name](x),
                model=here.Model(dtype=konfig.ConfigDict({"__const__": "jax.numpy:float64"})),
                evals={},
                num_train_steps=12,
            )
            for x in (1.0, 0.5)
        ]
        for cfg, weight in zip(configs, (1.0, 0.3), strict=True):
            cfg.train_losses["xent"].weight = weight
        plan = packs.plan(configs)
        assert [pack.members for pack in plan.packs] == [(0, 1)], list(plan.explain())
        assert_like_alone(configs, packs.train(configs, plan.packs[0]), rtol=1e-10, atol=1e-12)


def test_a_schedule_that_branches_on_its_numbers_is_tabulated() -> None:
    configs = [config(optimizer=OPTIMIZERS["warmup"](x)) for x in (1.0, 0.5)]
    (leaf,) = packs.plan(configs).leaves
    assert (leaf.path, leaf.table) == ("optimizer.learning_rate.peak_value", "optimizer.learning_rate")
    assert "tabulated" in leaf.reason


def test_the_plan_says_what_is_packed_and_why_the_rest_is_not() -> None:
    configs = [
        config(optimizer__learning_rate=rate, model__hidden=hidden, model__dropout=dropout)
        for rate in (1e-3, 1e-2)
        for hidden in (4, 8)
        for dropout in (0.1, 0.2)
    ]
    plan = packs.plan(configs)
    assert [pack.members for pack in plan.packs] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    lines = list(plan.explain())
    assert lines[0] == "pack of 4: trials 0-1, 4-5"
    for path in ("optimizer.learning_rate", "model.dropout"):
        assert any(line.startswith(f"{path}: packed") for line in lines)
    assert any(line.startswith("model.hidden: not packed, the step can't be traced with it:") for line in lines)
    assert [pack.members for pack in packs.plan(configs[:1] + configs[4:5], limit=1).packs] == [(0,), (1,)]
    with pytest.raises(ConfigError, match="8 trials make 2 packs, not one"):
        packs.train(configs)


@pytest.mark.soak
def test_a_number_of_the_model_packs_where_it_is_used_as_a_number() -> None:
    configs = [config(model__dropout=rate, num_train_steps=8) for rate in (0.1, 0.5)]
    assert_like_alone(configs, packs.train(configs))


def test_a_number_here_and_none_or_an_integer_there_makes_a_pack_of_each_kind() -> None:
    numbers = [(0.1, None), (0.2, None), (0.1, 0.5), (0.1, 0.6), (1, 0.5)]
    configs = [config(optimizer=optax.sgd(learning_rate=rate, momentum=momentum)) for rate, momentum in numbers]
    plan = packs.plan(configs)
    assert [pack.members for pack in plan.packs] == [(0, 1), (2, 3), (4,)]
    assert [pack.arguments for pack in plan.packs[:2]] == [("optimizer.learning_rate",), ("optimizer.momentum",)]


def test_trials_that_differ_outside_of_the_step_are_alone() -> None:
    configs = [config(num_train_steps=steps) for steps in (5, 6)]
    plan = packs.plan(configs)
    assert [pack.members for pack in plan.packs] == [(0,), (1,)]
    assert plan.leaves[0].reason == "it is no part of the compiled step"


def test_one_that_diverges_leaves_the_others_untouched() -> None:
    rates = (1e-2, 1e38, 1e-3)
    packed = packs.train([config(optimizer__learning_rate=rate) for rate in rates])
    assert packed.statuses == ("done", "diverged", "done")
    without = packs.train([config(optimizer__learning_rate=rate) for rate in (1e-2, 1e-4, 1e-3)])
    for row in (0, 2):
        jax.tree.map(np.testing.assert_array_equal, packed.state_of(row).params, without.state_of(row).params)


@pytest.mark.soak
def test_seeds_have_their_own_order_of_the_data() -> None:
    configs = [config(seed=seed) for seed in (0, 1)]
    for cfg in configs:
        cfg.train_ds.seed = None
    assert_like_alone(configs, packs.train(configs))


@pytest.mark.soak
def test_calls_of_several_steps_give_what_single_ones_give() -> None:
    def configs(size: int) -> list[Any]:
        return [config(optimizer__learning_rate=rate, steps_per_call=size) for rate in (1e-3, 1e-2)]

    single, several = packs.train(configs(1)), packs.train(configs(7))
    jax.tree.map(np.testing.assert_array_equal, single.states.params, several.states.params)


def saved(tmp_path: Any, steps: int, *, num_trials: int = 2, **checkpointer: Any) -> list[Any]:
    configs = [
        config(
            optimizer__learning_rate=rate,
            workdir=str(tmp_path / "trials" / str(index)),
            num_train_steps=steps,
            seed=index,
        )
        for index, rate in enumerate((1e-3, 1e-2, 3e-3)[:num_trials])
    ]
    for cfg in configs:
        cfg.train_ds.seed = None
        cfg.checkpointer = kd.ckpts.Checkpointer(**{"save_interval_steps": 5, **checkpointer})
    return configs


def test_a_trial_of_a_pack_is_loaded_and_goes_on_alone(tmp_path: Any) -> None:
    packed = packs.train(saved(tmp_path, 10), folder=tmp_path / "packs" / "0")
    # The run directory can be moved.
    (tmp_path / "trials").rename(tmp_path / "moved"), (tmp_path / "packs").rename(tmp_path / "packs2")
    (tmp_path / "packs2").rename(tmp_path / "packs"), (tmp_path / "moved").rename(tmp_path / "trials")
    for index, cfg in enumerate(saved(tmp_path, 14)):
        trainer = konfig.resolve(cfg)
        assert trainer.checkpointer.all_steps == [5, 10]
        state = trainer.checkpointer.load(trainer.state_specs).state
        jax.tree.map(np.testing.assert_array_equal, state, packed.state_of(index))
        folder = trainer.checkpointer.directory / "ckpt_10"
        assert not (folder / "state").exists() and not kd_ckpts.verify(folder)
        params = trainer.checkpointer.load(trainer.state_specs, only=("params",)).state.params
        jax.tree.map(np.testing.assert_array_equal, params, state.params)
        went_on = trainer.train()
        cfg.workdir = None
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
            went_on.params,
            konfig.resolve(cfg).train().params,
        )


def test_a_pack_that_was_cut_off_goes_on_to_the_same_bits(tmp_path: Any) -> None:
    whole = packs.train(saved(tmp_path / "whole", 12), folder=tmp_path / "whole" / "pack")
    cut = packs.iter_train(saved(tmp_path / "cut", 12), folder=tmp_path / "cut" / "pack")
    for event in cut:
        if event.event.step == 10 and type(event.event).__name__ == "Logged":
            break
    cut.close()
    again = packs.train(saved(tmp_path / "cut", 12), folder=tmp_path / "cut" / "pack")
    jax.tree.map(np.testing.assert_array_equal, again.states, whole.states)
    others = saved(tmp_path / "cut", 12)
    others[0].optimizer.learning_rate = 0.5
    with pytest.raises(ConfigError, match="holds the checkpoints of another pack"):
        packs.train(others, folder=tmp_path / "cut" / "pack")
    for index in (0, 1):
        events = rundir.read_events(tmp_path / "cut" / "trials" / str(index) / "events")
        steps = [event["step"] for event in events if event["kind"] == "metrics"]
        assert steps == [1, 10, 12] and events[-1]["kind"] == "done"


def test_checkpoints_that_no_trial_points_to_are_removed(tmp_path: Any) -> None:
    packs.train(saved(tmp_path, 20, max_to_keep=1), folder=tmp_path / "pack")
    assert kd_ckpts.all_steps(tmp_path / "trials" / "0" / "checkpoints") == [20]
    assert kd_ckpts.all_steps(tmp_path / "pack" / "checkpoints") == [20]


def test_a_pack_that_was_asked_to_stop_goes_on_to_the_same_bits_and_one_of_it_can_end_alone(tmp_path: Any) -> None:
    def trials(name: str) -> list[Any]:
        found = saved(tmp_path / name, 12, num_trials=3)
        for cfg in found:  # Quick to compile.
            cfg.evals, cfg.model.dropout, cfg.optimizer = {}, 0.0, optax.sgd(learning_rate=1e-2)
        return found

    whole = packs.train(trials("whole"), folder=tmp_path / "whole" / "pack")
    configs, folder = trials("cut"), tmp_path / "cut" / "pack"
    stop, leaving = threading.Event(), set[int]()

    def train() -> tuple[list[packs.MemberEvent], packs.Packed]:
        events = []
        training = packs.iter_train(configs, folder=folder, stop=stop, stop_members=lambda: leaving)
        while True:
            try:
                events.append(next(training))
            except StopIteration as end:
                return events, end.value
            if events[-1].event.step == 1:
                stop.set()

    events, packed = train()
    assert packed.statuses == ("preempted",) * 3
    ends = [event.event for event in events if type(event.event).__name__ == "Done"]
    assert {end.status for end in ends} == {"preempted"} and len({end.step for end in ends}) == 1
    assert ends[0].step < 12
    assert [type(event.event).__name__ for event in events[-6:-3]] == ["Saved"] * 3
    stop.clear(), leaving.add(1)
    _, packed = train()
    assert packed.statuses == ("done", "stopped", "done")
    for index in (0, 2):
        jax.tree.map(np.testing.assert_array_equal, packed.state_of(index), whole.state_of(index))
    left = konfig.resolve(configs[1])
    assert left.checkpointer.latest_step == ends[0].step + 1
    assert int(left.checkpointer.load(left.state_specs).state.step) == ends[0].step + 1
    # Once more: it tells how each ended, and the one that had left stays out.
    leaving.clear()
    events, packed = train()
    assert packed.statuses == ("done", "stopped", "done")
    assert (events[0].member, events[0].event.status, events[0].event.step) == (1, "stopped", ends[0].step + 1)
    own = rundir.read_events(tmp_path / "cut" / "trials" / "1" / "events")
    assert [event["kind"] for event in own][-2:] == ["checkpoint", "done"] and own[-1]["status"] == "stopped"
