"""Several optimizers in one step: a GAN that learns, and gradients that stay where they belong."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from kauldron_core import kd, kontext
from kauldron_core.errors import ConfigError
from tests.kauldron_core import experiments

MEAN, DEVIATION = (2.0, -1.0), 0.5


def load_cloud() -> dict[str, np.ndarray]:
    """Returns points around `MEAN`."""
    points = np.random.default_rng(0).normal(size=(512, 2)) * DEVIATION + MEAN
    return {"x": points.astype(np.float32)}


class Gan(nn.Module):
    """A generator of points and a critic that tells them from real ones."""

    x: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, x: Any) -> dict[str, Any]:
        noise = jax.random.normal(self.make_rng("default"), x.shape)
        fake = nn.Dense(2, name="generator")(noise)
        critic = kd.nn.MLP(hidden=16, features=1, x="", name="critic")
        return {"fake": fake, "on_real": critic(x), "on_fake": critic(fake)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Says(kd.losses.Loss):
    """How far the critic is from saying `real`, or from saying that it is not."""

    logits: kontext.Key = kontext.REQUIRED
    real: bool = True

    def get_values(self, logits: Any) -> Any:
        return nn.softplus(-logits if self.real else logits)[..., 0]


LOSSES = {
    "fool": Says(logits="preds.on_fake", real=True),
    "spot": Says(logits="preds.on_fake", real=False),
    "trust": Says(logits="preds.on_real", real=True),
}


def _gan(**fields: Any) -> Any:
    parts = {
        "generator": kd.optim.Part(optimizer=optax.adam(2e-2, b1=0.5), params="generator", losses="fool"),
        "critic": kd.optim.Part(optimizer=optax.adam(2e-2, b1=0.5), params="critic", losses=("spot", "trust")),
    }
    defaults = {
        "train_ds": kd.data.InMemoryPipeline(loader=load_cloud, batch_size=128, shuffle=True),
        "eval_ds": None,
        "model": Gan(x="batch.x"),
        "num_train_steps": 400,
        "log_metrics_every": 100,
        "train_losses": LOSSES,
        "train_metrics": {},
        "optimizer": kd.optim.MultiOptimizer(parts=parts),
        "trainstep": kd.train.MultiTrainStep(),
    }
    return experiments.trainer(**{**defaults, **fields})


def test_a_gan_learns_where_the_points_are() -> None:
    trainer = _gan()
    before, after = trainer.init_state().params["generator"], trainer.train().params["generator"]
    assert np.linalg.norm(np.subtract(before["bias"], MEAN)) > 2
    assert np.linalg.norm(np.subtract(after["bias"], MEAN)) < 0.5


def test_each_part_gets_the_gradient_of_its_own_losses_and_no_other() -> None:
    trainer = _gan()
    state, batch = trainer.init_state(), next(iter(trainer.train_ds))
    params = jax.device_get(state.params)
    program = trainer.trainstep.program
    context = kd.train.Context(step=state.step, batch=batch, params=state.params, collections={})
    outputs = kd.train.Outputs(losses=True)
    after = jax.jit(lambda c: program.descend(c, None, outputs))(context.replace(opt_state=state.opt_state))

    def loss(params: Any, *names: str) -> Any:
        preds = trainer.model.apply({"params": params}, batch["x"], rngs=trainer.rng_streams.train_rngs(0))
        return sum(LOSSES[name](context={"preds": preds}) for name in names)

    expected = {
        "generator": jax.grad(loss)(params, "fool")["generator"],
        "critic": jax.grad(loss)(params, "spot", "trust")["critic"],
    }
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)  # noqa: E731
    jax.tree.map(close, after.grads, expected)
    for part, other in (("generator", "critic"), ("critic", "generator")):
        jax.tree.map(close, after.subgrads[part][part], expected[part])
        assert not any(leaf.any() for leaf in jax.tree.leaves(after.subgrads[part][other]))
        assert not any(leaf.any() for leaf in jax.tree.leaves(after.subupdates[part][other]))
    jax.tree.map(close, after.updates, {part: after.subupdates[part][part] for part in expected})
    assert float(after.loss_total) == pytest.approx(float(loss(params, *LOSSES)), rel=1e-5)


def test_metrics_reach_the_gradients_and_states_of_the_parts() -> None:
    metrics = {
        "critic": kd.metrics.Norm(tensor="subgrads.critic.critic.Dense_0.kernel", axis=None),
        "step": kd.metrics.Norm(tensor="subupdates.generator.generator.bias", axis=None),
    }
    evaluator = kd.evals.Evaluator(run=kd.evals.Final(), ds=_gan().train_ds)
    trainer = _gan(train_metrics=metrics, evals={"test": evaluator})
    _, aux = trainer.trainstep.step(trainer.init_state(), next(iter(trainer.train_ds)), return_metrics=True)
    assert all(value > 0 for value in aux.scalars().values())
    assert not trainer.evals["test"].metrics  # they read what only training has


def test_a_part_that_updates_every_other_step() -> None:
    slow = kd.optim.Part(optimizer=optax.sgd(0.1), params="generator", losses=("fool",), every=2)
    fast = kd.optim.Part(optimizer=optax.sgd(0.1), params="critic", losses=("spot", "trust"))
    trainer = _gan(optimizer=kd.optim.MultiOptimizer(parts={"slow": slow, "fast": fast}))
    state, batch, moved = trainer.init_state(), next(iter(trainer.train_ds)), []
    for _ in range(4):
        before = jax.device_get(state.params)
        state, _ = trainer.trainstep.step(state, batch)
        after = jax.device_get(state.params)
        moved.append((before["generator"]["bias"] != after["generator"]["bias"]).any())
        assert (before["critic"]["Dense_1"]["kernel"] != after["critic"]["Dense_1"]["kernel"]).any()
    assert moved == [True, False, True, False]


def test_without_losses_of_their_own_the_parts_are_an_ordinary_optimizer() -> None:
    parts = {
        "first": kd.optim.Part(optimizer=optax.sgd(0.1), params="Dense_0"),
        "second": kd.optim.Part(optimizer=optax.sgd(0.01), params="Dense_1"),
    }
    optimizer = kd.optim.MultiOptimizer(parts=parts)
    plain = experiments.trainer(optimizer=optimizer)
    multi = experiments.trainer(optimizer=optimizer, trainstep=kd.train.MultiTrainStep())
    batch = next(iter(plain.train_ds))
    states = [trainer.trainstep.step(trainer.init_state(), batch)[0] for trainer in (plain, multi)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), *(s.params for s in states))


def _parts(**parts: Any) -> Any:
    made = {
        name: kd.optim.Part(optimizer=optax.sgd(0.1), params=params, losses=losses)
        for name, (params, losses) in parts.items()
    }
    return kd.optim.MultiOptimizer(parts=made)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trainstep": kd.train.TrainStep()}, r"optimizer.parts.generator.losses: .* kd.train.MultiTrainStep\(\)"),
        ({"optimizer": optax.sgd(0.1)}, "MultiTrainStep needs a kd.optim.MultiOptimizer"),
        (
            {"optimizer": _parts(a=("generator", ("fol",)))},
            "optimizer.parts.a.losses: unknown loss 'fol'. Did you mean 'fool'",
        ),
        (
            {"optimizer": _parts(a=("generator", ("fool",)), b=("critic", ("spot",)))},
            "train_losses.trust: no part of the optimizer minimises it",
        ),
        (
            {"optimizer": _parts(a=("generator", None), b=(["critic", "generator"], None))},
            "2 parts update the parameter",
        ),
        ({"optimizer": _parts(a=("generatr", None))}, "unknown parameter 'generatr'. Did you mean 'generator'"),
    ],
)
def test_what_does_not_go_together_is_refused(fields: Any, message: str) -> None:
    trainer = _gan(**fields)
    with pytest.raises(ConfigError, match=message):
        jax.eval_shape(trainer.trainstep.step, trainer.state_specs, trainer.train_ds.element_spec)


def test_a_multi_optimizer_has_parts_that_make_sense() -> None:
    with pytest.raises(ConfigError, match="at least one part"):
        kd.optim.MultiOptimizer(parts={})
    with pytest.raises(ConfigError, match="every has to be at least 1"):
        kd.optim.Part(optimizer=optax.sgd(0.1), params="a", every=0)
