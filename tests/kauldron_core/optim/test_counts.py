"""The count of a schedule is found in the state of whatever optimizer calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from kauldron_core import kd

PARAMS = {"a": jnp.ones(2), "b": {"c": jnp.ones(3)}}
LABELS = {"a": "x", "b": {"c": "y"}}
OTHER = optax.linear_schedule(1.0, 0.0, 8)


def _every(num: int, optimizer: Any) -> Any:
    return optax.MultiSteps(optimizer, num).gradient_transformation()


def _parts(rate: Any) -> Any:
    return kd.optim.MultiOptimizer(
        parts={
            "x": kd.optim.Part(optimizer=optax.sgd(OTHER), params="a"),
            "y": kd.optim.Part(optimizer=optax.sgd(rate), params="b", every=2),
        }
    )


# Made from a schedule, with the place of its count in the state.
OPTIMIZERS: dict[str, tuple[Callable[[Any], Any], str | None]] = {
    "sgd": (optax.sgd, "[1].count"),
    "adamw": (optax.adamw, "[2].count"),
    "adafactor": (optax.adafactor, "[2].count"),
    "chain": (lambda rate: optax.chain(optax.clip(1.0), optax.adam(rate)), "[1][1].count"),
    "second": (lambda rate: optax.chain(optax.adam(OTHER), optax.scale_by_schedule(rate)), "[1].count"),
    "MultiSteps": (lambda rate: _every(2, optax.adam(rate)), "inner_opt_state[1].count"),
    "MultiSteps in a chain": (
        lambda rate: optax.chain(optax.clip(1.0), _every(2, optax.adam(rate))),
        "[1].inner_opt_state[1].count",
    ),
    "partition": (
        lambda rate: optax.partition({"x": optax.adam(OTHER), "y": _every(3, optax.adam(rate))}, LABELS),
        "inner_states.y.inner_state.inner_opt_state[1].count",
    ),
    "masked": (lambda rate: optax.masked(optax.adam(rate), {"a": True, "b": {"c": False}}), "inner_state[1].count"),
    "inject_hyperparams": (
        lambda rate: optax.inject_hyperparams(optax.adamw)(learning_rate=OTHER, weight_decay=rate),
        "hyperparams_states.weight_decay.count",
    ),
    "apply_if_finite": (lambda rate: optax.apply_if_finite(optax.adam(rate), 3), "inner_state[1].count"),
    "named_chain": (
        lambda rate: kd.optim.named_chain(clip=optax.clip(1.0), adam=optax.adam(rate)),
        "adam[1].count",
    ),
    "MultiOptimizer": (_parts, "y.inner_states.train.inner_state.inner_state[1].count"),
    "another schedule": (lambda rate: optax.sgd(OTHER), None),
}


@pytest.mark.parametrize("kind", ["function", "object"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_count_is_that_of_the_transformation_that_calls_the_schedule(name: str, kind: str) -> None:
    """F05: what is logged of a schedule is what was used, so the count has to be the optimizer's own."""
    make, place = OPTIMIZERS[name]
    optim = kd.optim.Schedule(name="linear", value=1.0, num_steps=8)
    schedule: Any = optax.linear_schedule(1.0, 0.0, 9) if kind == "function" else optim
    optimizer = make(schedule)
    state = jax.eval_shape(optimizer.init, PARAMS)
    found = kd.optim.count_of(schedule, optimizer, state)
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    at = [str(kd.kontext.Path.from_jax_path(path)) for path, leaf in leaves if leaf is found]
    assert at == ([] if place is None else [place])
