"""What every optimizer and wrapper of `kd.optim` promises, as part of a compiled step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron_core import kd

optim = kd.optim

# Compiling is what these tests do most of the time; the code they make runs once.
_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def _multi(rate: Any, **fields: Any) -> Any:
    return optim.MultiOptimizer(
        parts={
            "body": optim.Part(optimizer=optax.adam(rate), params="enc"),
            "head": optim.Part(optimizer=optax.sgd(rate, momentum=0.9), params=optim.exclude("enc"), **fields),
        }
    )


# Made from a learning rate, which may be traced.
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "MultiOptimizer": _multi,
    "MultiOptimizer-every": lambda rate: _multi(rate, every=2),
    "Schedule": lambda rate: optax.adam(optim.Schedule(name="cosine", value=rate, num_steps=5, warmup_steps=2)),
    "decay_to_init": lambda rate: optax.chain(optim.decay_to_init(rate), optax.sgd(rate)),
    "decay_to_init-mask": lambda rate: optax.chain(optim.decay_to_init(rate, optim.select("enc")), optax.sgd(rate)),
    "ema_params": lambda rate: optax.chain(optax.adam(rate), optim.ema_params(decay=0.9)),
    "ema_params-float32": lambda rate: optax.chain(
        optax.adam(rate), optim.ema_params(decay=1 - rate, debias=False, accumulator_dtype=jnp.float32)
    ),
    "exclude": lambda rate: optax.adamw(rate, mask=optim.exclude(["bias", "scale"])),
    "named_chain": lambda rate: optim.named_chain(clip=optax.clip_by_global_norm(1.0), adam=optax.adam(rate)),
    "named_chain-extra": lambda rate: optim.named_chain(
        sgd=optax.sgd(rate), plateau=optax.contrib.reduce_on_plateau(patience=2)
    ),
    "partial_updates": lambda rate: optim.partial_updates(optax.adam(rate), optim.select("enc")),
    "partial_updates-ema": lambda rate: optim.partial_updates(
        optim.named_chain(adam=optax.adam(rate), ema=optim.ema_params(decay=0.9)), optim.exclude("enc.kernel")
    ),
    "select": lambda rate: optax.adamw(rate, mask=optim.select("kernel")),
}

every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


def _params(dtype: Any = np.float32) -> Any:
    generator = np.random.default_rng(0)

    def make(*shape: int) -> Any:
        return jnp.asarray(generator.normal(size=shape), dtype)

    return {
        "enc": {"kernel": make(3, 2), "bias": make(2)},
        "head": {"kernel": make(2, 2), "scale": make(2), "layers": [make(2), make(1)]},
    }


def _run(make: Callable[[Any], Any], rate: Any, params: Any, *, num_steps: int = 4) -> Any:
    """Returns parameters and state after some steps down a bowl, in one scan: no dtype or shape may change."""
    optimizer = optax.with_extra_args_support(make(rate))

    def step(carry: Any, _: Any) -> tuple[Any, None]:
        params, state = carry
        value, grads = jax.value_and_grad(lambda p: sum(jnp.sum((x - 1) ** 2) for x in jax.tree.leaves(p)))(params)
        updates, state = optimizer.update(grads, state, params, value=value)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(step, (params, optimizer.init(params)), length=num_steps)[0]


def _assert_close(left: Any, right: Any, **tolerance: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(np.float32(a), np.float32(b), **tolerance), left, right)


def test_every_public_transformation_is_among_the_cases() -> None:
    others = {"DecayToInitState", "EmaParamsState", "Part", "UseEmaParams", "count_of", "held_by"}
    assert set(optim.__all__) - others <= set(OPTIMIZERS)


RATES = np.asarray([0.01, 0.05], np.float32)


@functools.cache
def _side_by_side(name: str) -> Any:
    """Returns parameters and state of two trials after some steps, from one program that is given their rates."""
    return jax.device_get(_jit(jax.vmap(lambda rate: _run(OPTIMIZERS[name], rate, _params())))(RATES))


@functools.cache
def _alone(name: str) -> Any:
    """Returns parameters and state of the second trial, whose rate is written into the program."""
    return jax.device_get(_jit(lambda: _run(OPTIMIZERS[name], float(RATES[1]), _params()))())


def _types(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


@every_optimizer
def test_nothing_changes_its_type_and_something_is_learned(name: str) -> None:
    low = _params(jnp.bfloat16)
    run = _jit(lambda params: _run(OPTIMIZERS[name], 0.05, params))
    for params, (after, state) in ((_params(), _alone(name)), (low, jax.device_get(run(low)))):
        assert _types(after) == _types(params)
        assert all(np.isfinite(np.float32(leaf)).all() for leaf in jax.tree.leaves((after, state)))
        assert any((a != b).any() for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(params), strict=True))


@every_optimizer
def test_traced_numbers_and_trials_side_by_side_change_nothing(name: str) -> None:
    second = jax.tree.map(lambda leaf: leaf[1], _side_by_side(name))
    assert _types(second) == _types(_alone(name))
    _assert_close(second[0], _alone(name)[0], rtol=1e-4, atol=1e-6)


@every_optimizer
def test_the_state_holds_copies_and_its_shapes_are_known_before(name: str) -> None:
    params = _params()
    optimizer = OPTIMIZERS[name](0.05)
    state, shapes = optimizer.init(params), jax.eval_shape(optimizer.init, params)
    assert _types(state) == _types(shapes)
    # The step gives the buffers of both to XLA, which refuses one that it is given twice.
    step = _jit(lambda params, state: jax.tree.map(jnp.negative, (params, state)), donate_argnums=(0, 1))
    step(params, state)
