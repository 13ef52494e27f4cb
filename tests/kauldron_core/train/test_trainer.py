"""The trainer as a description: what its parts inherit, what it refuses, how its step is used directly."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import optax
import pytest

from kauldron_core import kd, konfig
from kauldron_core.errors import ConfigError
from kauldron_core.train import Logged
from tests.kauldron_core import experiments


def test_parts_take_what_they_leave_unset_from_the_root() -> None:
    own = experiments.points(seed=9)
    trainer = experiments.trainer(
        "/work",
        seed=7,
        evals={
            "test": kd.evals.Evaluator(run=kd.evals.Final()),
            "own": kd.evals.Evaluator(run=kd.evals.Final(), ds=own, losses={}),
            "seedless": kd.evals.Evaluator(run=kd.evals.Final(), ds=experiments.points()),
        },
    )
    assert (trainer.train_ds.seed, trainer.eval_ds.seed, trainer.rng_streams.seed) == (7, 7, 7)
    assert trainer.checkpointer.workdir == trainer.writer.workdir == "/work"
    test, other, seedless = trainer.evals["test"], trainer.evals["own"], trainer.evals["seedless"]
    assert (test.name, other.name) == ("test", "own")
    assert test.ds is trainer.eval_ds
    assert test.losses is trainer.train_losses
    assert (other.ds, other.losses, seedless.ds.seed) == (own, {}, 7)


def test_replace_hands_down_again_what_was_inherited_and_keeps_what_was_given() -> None:
    evals = {
        "test": kd.evals.Evaluator(run=kd.evals.Final()),
        "own": kd.evals.Evaluator(run=kd.evals.Final(), losses={}),
    }
    trainer = experiments.trainer("/a", evals=evals, train_ds=experiments.points(seed=3))
    other_ds = experiments.points(batch_size=5)
    changed = dataclasses.replace(trainer, seed=1, workdir="/b", eval_ds=other_ds, train_losses={"x": None})
    assert (changed.rng_streams.seed, changed.eval_ds.seed, changed.train_ds.seed) == (1, 1, 3)
    assert changed.checkpointer.workdir == "/b"
    assert changed.trainstep.rng_streams.seed == 1
    assert changed.evals["test"].ds is changed.eval_ds
    assert changed.evals["test"].ds.batch_size == 5
    assert list(changed.evals["test"].losses) == ["x"]
    assert changed.evals["own"].losses == {}


def test_replace_keeps_what_is_compiled_when_the_step_is_the_same() -> None:
    trainer = experiments.trainer(evals={"test": kd.evals.Evaluator(run=kd.evals.Final())})
    moved = dataclasses.replace(trainer, workdir="/elsewhere", num_train_steps=99)
    assert moved.trainstep is trainer.trainstep
    assert moved.evals["test"] is trainer.evals["test"]
    assert dataclasses.replace(trainer, seed=5).trainstep is not trainer.trainstep


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": None}, "model: unset. A Trainer needs train_ds, model, optimizer and train_losses"),
        ({"optimizer": None}, "optimizer: unset"),
        ({"train_ds": None}, "train_ds: unset"),
        ({"train_losses": {}}, "train_losses: empty, there is nothing to minimise"),
        ({"log_metrics_every": 0}, "log_metrics_every: must be at least 1, not 0"),
        ({"num_train_steps": -1}, "num_train_steps: must be at least 0, not -1"),
        ({"evals": {"train": None}}, "evals.train: the name is taken by the training metrics"),
        ({"evals": {"a/b": None}}, "evaluator name 'a/b' holds '/'"),
    ],
)
def test_what_can_not_work_is_refused_when_it_is_built(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        experiments.trainer(**fields)


def test_an_evaluator_without_data_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match=r"evals\.test\.ds: unset"):
        experiments.trainer(eval_ds=None, evals={"test": kd.evals.Evaluator(run=kd.evals.Final())})


def test_the_step_can_be_used_in_a_loop_of_ones_own() -> None:
    trainer = experiments.trainer()
    state = trainer.trainstep.init(trainer.train_ds.element_spec)
    data, values = iter(trainer.train_ds), {}
    for step in range(12):
        state, aux = trainer.trainstep.step(
            state, next(data), return_losses=step in (0, 3, 7, 11), return_metrics=step in (0, 3, 7, 11)
        )
        values[step + 1] = aux.scalars()
    events = list(experiments.trainer().iter_train())
    logged = {event.step: event.values for event in experiments.of_kind(events, Logged)}
    assert {step: value for step, value in values.items() if value} == {
        step: {name: value for name, value in found.items() if not name.startswith("perf/")}
        for step, found in logged.items()
    }
    for left, right in zip(jax.tree.leaves(state), jax.tree.leaves(experiments.trainer().train()), strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_step_alone_says_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match=r"trainstep\.model: unset.*Trainer"):
        kd.train.TrainStep().init({"x": np.zeros((2, 3))})


def test_each_program_is_compiled_once() -> None:
    trainer = experiments.trainer(num_train_steps=30)
    trainer.train()
    trainer.train()
    structure, _ = trainer.trainstep._compiled[0]
    assert sorted(bool(outputs) for outputs, _ in structure._steps) == [False, True]
    assert [step._cache_size() for step in structure._steps.values()] == [1, 1]


def test_shapes_are_known_without_computing() -> None:
    trainer = experiments.trainer()
    specs = trainer.state_specs
    assert isinstance(specs.params["Dense_0"]["kernel"], jax.ShapeDtypeStruct)
    assert jax.tree.structure(specs) == jax.tree.structure(trainer.init_state())


def test_a_config_can_be_filled_from_below() -> None:
    with konfig.imports():
        import optax as lazy_optax

        from kauldron_core import kd as lazy_kd
        from tests.kauldron_core import experiments as lazy

    cfg = lazy_kd.train.Trainer()
    cfg.model = lazy_kd.nn.MLP(hidden=4, features=3, x="batch.x")
    cfg.train_ds = lazy_kd.data.InMemoryPipeline(loader=lazy.load_points, batch_size=16)
    cfg.train_losses.xent = lazy_kd.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds", labels="batch.label")
    cfg.optimizer = lazy_optax.adam(1e-2)
    cfg.evals["test"] = lazy_kd.evals.Evaluator(run=lazy_kd.evals.Final(), ds=cfg.train_ds)
    cfg.num_train_steps = 3
    cfg.aux.folder = cfg.ref.workdir
    cfg.workdir = "/somewhere"
    trainer = konfig.resolve(cfg)
    assert isinstance(trainer, kd.train.Trainer)
    assert trainer.raw_cfg == cfg
    assert trainer.aux["folder"] == "/somewhere"
    assert trainer.evals["test"].name == "test"
    with pytest.raises(ValueError, match="num_train_steps"):
        cfg.num_train_step = 4


def test_weights_that_are_schedules_follow_the_step() -> None:
    losses = {
        "value": kd.losses.AbsoluteValue(values="batch.x", weight=optax.linear_schedule(0.0, 1.0, 10)),
    }
    trainer = experiments.trainer(
        train_losses=losses, train_metrics={}, train_ds=experiments.points(), num_train_steps=3
    )
    events = list(dataclasses.replace(trainer, log_metrics_every=1).iter_train())
    batches = iter(experiments.points())
    expected = {step: (step - 1) / 10 * float(np.abs(next(batches)["x"]).mean()) for step in (1, 2, 3)}
    found = {event.step: event.values["losses/value"] for event in experiments.of_kind(events, Logged)}
    assert found == pytest.approx(expected, rel=1e-5)


def test_losses_may_come_in_groups() -> None:
    decay = kd.losses.AbsoluteValue(values="params.Dense_0.kernel", weight=0.1)
    trainer = experiments.trainer(
        train_losses={**experiments.losses(), "size": {"first": decay}},
        evals={"test": kd.evals.Evaluator(run=kd.evals.Final())},
        num_train_steps=2,
    )
    for event in trainer.iter_train():
        if hasattr(event, "values"):
            parts = event.values["losses/xent"] + event.values["losses/size/first"]
            assert event.values["losses/total"] == pytest.approx(parts, rel=1e-5)


@pytest.mark.process
def test_the_namespace_loads_nothing_heavy() -> None:
    code = "import sys, json; from kauldron_core import kd; print(json.dumps(list(sys.modules)))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    loaded = set(json.loads(child.stdout))
    heavy = {"tensorflow", "ray", "mlflow", "orbax.checkpoint", "grain", "pyarrow", "seqio", "sklearn", "pandas"}
    assert not loaded & heavy
