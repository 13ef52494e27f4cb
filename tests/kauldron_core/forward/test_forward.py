"""What losses and metrics can reach, and what random streams depend on."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron_core import kd, kontext
from kauldron_core.forward import (
    AuxiliariesState,
    Context,
    ForwardPass,
    Health,
    RngStream,
    RngStreams,
    good_health,
    health_after,
    reads,
)
from kauldron_core.metrics import AverageState, Metric
from tests.kauldron_core import experiments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mean(Metric):
    """The mean of any array in the context."""

    values: kontext.Key = kontext.REQUIRED
    State = AverageState

    def get_state(self, values):
        return self.State.from_values(values)


REACHABLE = {
    "step": "step",
    "batch": "batch.x",
    "params": "params.Dense_0.kernel",
    "preds": "preds",
    "interms": "interms.Dense_0.__call__[0]",
    "loss_total": "loss_total",
    "loss_states": "loss_states.xent.total",
    "grads": "grads.Dense_0.kernel",
    "updates": "updates.Dense_1.bias",
    "opt_state": "opt_state[0].mu.Dense_0.kernel",
}


@pytest.mark.slow
def test_a_metric_reaches_everything_that_a_step_computes() -> None:
    metrics = {name: Mean(values=path) for name, path in REACHABLE.items()}
    trainer = experiments.trainer(train_metrics=metrics, model=kd.nn.MLP(hidden=8, features=3, x="batch.x"))
    state, batch = trainer.init_state(), next(iter(trainer.train_ds))
    params = jax.device_get(state.params)

    def loss(params: Any) -> jax.Array:
        logits = trainer.model.apply({"params": params}, batch["x"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    total, grads = jax.value_and_grad(loss)(params)
    updates, _ = optax.adam(1e-2).update(grads, optax.adam(1e-2).init(params), params)
    hidden = batch["x"] @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"]
    expected = {
        "step": 0,
        "batch": batch["x"].mean(),
        "params": params["Dense_0"]["kernel"].mean(),
        "preds": trainer.model.apply({"params": params}, batch["x"]).mean(),
        "interms": hidden.mean(),
        "loss_total": total,
        "loss_states": total * 16,
        "grads": grads["Dense_0"]["kernel"].mean(),
        "updates": updates["Dense_1"]["bias"].mean(),
        "opt_state": 0.1 * grads["Dense_0"]["kernel"].mean(),
    }
    _, aux = trainer.trainstep.step(state, batch, return_losses=True, return_metrics=True)
    found = {name.removeprefix("metrics/"): value for name, value in aux.scalars().items() if "metrics/" in name}
    assert found == pytest.approx({name: float(value) for name, value in expected.items()}, rel=2e-4, abs=1e-6)


def test_a_loss_on_parameters_needs_no_change_of_the_model() -> None:
    losses = {**experiments.losses(), "decay": kd.losses.AbsoluteValue(values="params.Dense_0.kernel", weight=0.1)}
    trainer = experiments.trainer(train_losses=losses)
    state = trainer.init_state()
    expected = 0.1 * float(jnp.abs(state.params["Dense_0"]["kernel"]).mean())
    _, aux = trainer.trainstep.step(state, next(iter(trainer.train_ds)), return_losses=True)
    values = aux.scalars()
    assert values["losses/decay"] == pytest.approx(expected, rel=1e-5)
    assert values["losses/total"] == pytest.approx(values["losses/xent"] + values["losses/decay"], rel=1e-5)


@pytest.mark.parametrize(
    ("path", "wants"), [("interms.a", True), ("interms", True), ("intermsx.a", False), ("preds", False)]
)
def test_inner_outputs_are_recorded_only_when_asked_for(path: str, wants: bool) -> None:
    assert reads(Mean(values=path), "interms") == wants
    model = kd.nn.MLP(hidden=4, features=2, x="batch.x")
    forward = ForwardPass(model, RngStreams(seed=0), (Mean(values=path),))
    batch = {"x": jnp.ones((2, 3))}
    params, collections = forward.init(batch)
    after = forward.train(Context(step=0, batch=batch, params=params, collections=collections))
    assert (after.interms is not None) == wants


def test_a_training_batch_that_is_padded_counts_its_examples_once() -> None:
    padded = experiments.trainer(train_ds=experiments.points(num_epochs=1, batch_drop_remainder="pad", batch_size=64))
    batches = list(padded.train_ds)
    state, aux = padded.init_state(), AuxiliariesState()
    for batch in batches:
        state, step_aux = padded.trainstep.step(state, batch, return_losses=True, return_metrics=True)
        aux = aux.merge(step_aux.to_host())
    assert len(batches) == 2
    assert aux.metric_states["accuracy"].count == experiments.NUM_EXAMPLES
    assert aux.loss_states["xent"].count == experiments.NUM_EXAMPLES


def _bits(rngs: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(np.asarray(jax.random.key_data(key)).tolist()) for name, key in rngs.items()}


def test_a_stream_depends_on_seed_name_and_step_alone() -> None:
    streams = RngStreams(seed=7)
    assert _bits(streams.train_rngs(5)) == _bits(RngStreams(seed=7).train_rngs(jnp.int32(5)))
    assert _bits(jax.jit(streams.train_rngs)(5)) == _bits(streams.train_rngs(5))
    keys = [*_bits(streams.train_rngs(5)).values(), *_bits(streams.train_rngs(6)).values()]
    keys += [*_bits(RngStreams(seed=8).train_rngs(5)).values(), *_bits(streams.init_rngs()).values()]
    assert len(set(keys)) == len(keys)


def test_a_stream_is_the_key_folded_by_its_name() -> None:
    expected = kd.random.PRNGKey(7).fold_in("dropout").fold_in(5).rng
    np.testing.assert_array_equal(RngStreams(seed=7).train_rngs(5)["dropout"], expected)


def test_streams_are_added_and_changed_by_name() -> None:
    streams = RngStreams([RngStream(name="noise", eval=True, per_step=False), RngStream(name="dropout", eval=True)])
    assert set(streams.init_rngs()) == {"params", "default"}
    assert set(streams.train_rngs(0)) == {"dropout", "default", "noise"}
    assert set(streams.eval_rngs(0)) == {"dropout", "noise"}
    assert _bits(streams.train_rngs(0))["noise"] == _bits(streams.train_rngs(1))["noise"]


def test_health_keeps_the_first_bad_step() -> None:
    flag = good_health()
    assert Health.of(flag).first_bad_step == 0
    for step, loss in ((1, -1), (2, 1), (3, 0), (4, -1)):
        flag = health_after(flag, jnp.int32(step), is_good=jnp.bool_(loss < 0), bad_loss=loss)
    assert Health.of(flag) == Health(first_bad_step=2, first_bad_loss=1, num_bad_steps=2)


def test_auxiliaries_take_what_only_one_side_has() -> None:
    one = AuxiliariesState(metric_states={"a": AverageState.from_values(jnp.array([1.0, 0.0]))})
    two = AuxiliariesState(metric_states={"a": AverageState.from_values(jnp.array([1.0])), "b": one.metric_states["a"]})
    merged = one.merge(two)
    assert merged.scalars() == pytest.approx({"metrics/a": 2 / 3, "metrics/b": 0.5})
    assert merged.without(metrics=["a"]).scalars() == {"metrics/b": 0.5}


def test_groups_of_losses_have_totals_of_their_own():
    states = {
        name: AverageState.from_values(jnp.full((4,), value))
        for name, value in (("a/x", 1.0), ("a/y", 2.0), ("z", 4.0))
    }
    values = AuxiliariesState(loss_states=states).scalars()
    assert values == {"losses/total": 7, "losses/a": 3, "losses/a/x": 1, "losses/a/y": 2, "losses/z": 4}


def test_a_metric_of_several_values_is_recorded_by_part(caplog: pytest.LogCaptureFixture) -> None:
    @dataclasses.dataclass(frozen=True)
    class Computed:
        value: Any

        def compute(self):
            return self.value

    found = {
        "recall": np.array([0.5, 0.25]),
        "confusion": jnp.array([[1, 2], [3, 4]]),
        "pair": (1.0, {"mean": np.float32(2.0)}),
        "text": "no number",
        "large": np.zeros((6, 6)),
    }
    values = AuxiliariesState(metric_states={name: Computed(value) for name, value in found.items()}).scalars()
    assert values == {
        "metrics/recall/0": 0.5,
        "metrics/recall/1": 0.25,
        "metrics/confusion/0/0": 1.0,
        "metrics/confusion/0/1": 2.0,
        "metrics/confusion/1/0": 3.0,
        "metrics/confusion/1/1": 4.0,
        "metrics/pair/0": 1.0,
        "metrics/pair/1/mean": 2.0,
    }
    assert "metrics/large: an array of shape (6, 6) is not recorded" in caplog.text
