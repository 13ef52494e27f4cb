"""Averages of the parameters, decay to their start, and the evaluation of an average."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron_core import kd
from kauldron_core.errors import ConfigError
from tests.kauldron_core import experiments


def _after(optimizer: Any, start: float, num_steps: int) -> tuple[Any, Any]:
    """Returns parameter and state after steps that each subtract 1."""
    param = jnp.float32(start)
    state = optimizer.init(param)
    for _ in range(num_steps):
        update, state = optimizer.update(jnp.float32(1.0), state, param)
        param = optax.apply_updates(param, update)
    return param, state


@pytest.mark.parametrize(
    ("debias", "expected"), [(True, [9.181818, 8.295454, 7.3986015]), (False, [9.9, 9.71, 9.438999])]
)
def test_the_average_is_over_what_the_updates_lead_to(debias: bool, expected: list[float]) -> None:
    optimizer = optax.chain(optax.sgd(1.0), kd.optim.ema_params(decay=0.9, debias=debias))
    for num_steps, value in enumerate(expected, start=1):
        param, (_, state) = _after(optimizer, 10.0, num_steps)
        assert float(param) == 10 - num_steps
        assert float(state.ema_params) == pytest.approx(value, rel=1e-6)
        assert int(state.count) == num_steps


def test_a_long_average_forgets_where_it_started() -> None:
    _, (_, state) = _after(optax.chain(optax.sgd(0.0), kd.optim.ema_params(decay=0.5)), 3.0, 20)
    assert float(state.ema_params) == pytest.approx(3.0)


def test_the_average_of_bfloat16_parameters_needs_and_may_have_more_bits() -> None:
    fine = kd.optim.ema_params(decay=0.999, debias=False, accumulator_dtype=jnp.float32)
    coarse = kd.optim.ema_params(decay=0.999, debias=False)
    param = jnp.ones((), jnp.bfloat16)
    results = []
    for transform in (fine, coarse):
        state = transform.init(jnp.zeros((), jnp.bfloat16) + 0.75)
        for _ in range(100):
            _, state = transform.update(jnp.zeros((), jnp.bfloat16), state, param)
        results.append(float(state.ema_params))
    assert results[0] == pytest.approx(1 - 0.25 * 0.999**100, rel=1e-4)
    assert results[1] == 0.75  # never moved


@pytest.mark.parametrize("transform", [kd.optim.ema_params(decay=0.9), kd.optim.decay_to_init(0.1)])
def test_what_needs_the_parameters_says_so(transform: Any) -> None:
    with pytest.raises(ValueError, match="needs the parameters"):
        transform.update(1.0, transform.init(1.0))


def test_decay_pulls_towards_the_start_in_proportion() -> None:
    params = {"a": jnp.float32(2.0), "b": jnp.float32(3.0)}
    moved = {"a": jnp.float32(5.0), "b": jnp.float32(3.5)}
    for mask, expected in ((None, {"a": 0.3, "b": 0.05}), (kd.optim.select("b"), {"a": 0.0, "b": 0.05})):
        transform = kd.optim.decay_to_init(0.1, mask)
        updates, _ = transform.update({"a": 0.0, "b": 0.0}, transform.init(params), moved)
        assert jax.tree.map(float, updates) == pytest.approx(expected, rel=1e-6)


def _trainer(optimizer: Any, **evals: Any) -> Any:
    return experiments.trainer(
        optimizer=optimizer,
        evals={
            name: kd.evals.Evaluator(run=kd.evals.Final(), init_transform=transform)
            for name, transform in evals.items()
        },
    )


def test_an_evaluator_evaluates_the_average() -> None:
    optimizer = kd.optim.named_chain(adam=optax.adam(0.1), ema=kd.optim.ema_params(decay=0.5))
    trainer = _trainer(
        optimizer, plain=None, ema=kd.optim.UseEmaParams(), named=kd.optim.UseEmaParams(ema_params_transform="ema")
    )
    state = trainer.train()
    values = {name: evaluator.evaluate(state).values["losses/xent"] for name, evaluator in trainer.evals.items()}
    averaged = state.replace(params=state.opt_state["ema"].ema_params)
    assert values["ema"] == values["named"] == trainer.evals["plain"].evaluate(averaged).values["losses/xent"]
    assert values["ema"] != values["plain"]


def test_frozen_parameters_have_no_average_and_may_keep_their_value() -> None:
    inner = kd.optim.named_chain(sgd=optax.sgd(0.1), ema=kd.optim.ema_params(decay=0.5))
    optimizer, params = kd.optim.partial_updates(inner, kd.optim.select("b")), {"a": jnp.ones(2), "b": jnp.ones(2)}
    updates, opt_state = optimizer.update(params, optimizer.init(params), params)
    params = optax.apply_updates(params, updates)
    state = kd.train.TrainState.create(params=params, collections={}, opt_state=opt_state)
    with pytest.raises(ConfigError, match="partial_ok=True"):
        kd.optim.UseEmaParams().transform(state)
    averaged = kd.optim.UseEmaParams(partial_ok=True).transform(state).params
    np.testing.assert_array_equal(averaged["a"], state.params["a"])
    assert (averaged["b"] > state.params["b"]).all()


def test_states_with_empty_parts_go_to_the_disk_and_back(tmp_path: Any) -> None:
    """C14: states with empty parts go to the disk and back."""
    parts = {
        "ema": kd.optim.Part(
            optimizer=kd.optim.named_chain(
                clip=optax.clip(1.0), pull=kd.optim.decay_to_init(0.1), ema=kd.optim.ema_params(decay=0.5)
            ),
            params="Dense_0",
        ),
        "frozen": kd.optim.Part(optimizer=optax.set_to_zero(), params="Dense_1.bias"),
    }
    trainer = experiments.trainer(tmp_path, optimizer=kd.optim.MultiOptimizer(parts=parts), num_train_steps=2)
    state = trainer.train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = trainer.checkpointer.load(trainer.state_specs).state  # pyright: ignore
    assert jax.tree.structure(loaded) == jax.tree.structure(state)
    jax.tree.map(np.testing.assert_array_equal, loaded, state)


@pytest.mark.parametrize(
    ("transforms", "path", "message"),
    [
        ({}, None, "holds 0 running averages"),
        ({"one": kd.optim.ema_params(decay=0.5), "two": kd.optim.ema_params(decay=0.9)}, None, "Available: one, two"),
        ({"one": kd.optim.ema_params(decay=0.5)}, "sgd", "holds 0 running averages"),
    ],
)
def test_an_average_that_is_missing_or_ambiguous_is_refused(transforms: Any, path: Any, message: str) -> None:
    optimizer, params = kd.optim.named_chain(sgd=optax.sgd(0.1), **transforms), {"w": jnp.ones(())}
    state = kd.train.TrainState.create(params=params, collections={}, opt_state=optimizer.init(params))
    with pytest.raises(ConfigError, match=message):
        kd.optim.UseEmaParams(ema_params_transform=path).transform(state)
