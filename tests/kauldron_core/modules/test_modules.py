"""Layers that know whether they train."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron_core import kd, kontext


class Mode(nn.Module):
    """Returns whether it trains."""

    x: kontext.Key = "batch.x"
    is_training = kd.nn.train_property()

    def __call__(self, x: Any) -> bool:
        return self.is_training


@pytest.mark.parametrize("is_training", [True, False])
def test_a_layer_reads_the_innermost_setting(is_training: bool) -> None:
    with kd.nn.set_train_property(not is_training), kd.nn.set_train_property(is_training):
        assert Mode().apply({}, 1) == is_training


def test_outside_of_a_setting_or_of_a_bound_module_it_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing says whether this is training"):
        Mode().apply({}, 1)
    with pytest.raises(ValueError, match="only be read inside a bound module"), kd.nn.set_train_property(True):
        _ = Mode().is_training


def test_dropout_drops_in_training_only() -> None:
    x = jnp.ones((4, 50))
    with kd.nn.set_train_property(False):
        np.testing.assert_array_equal(kd.nn.Dropout(0.5).apply({}, x), x)
    with kd.nn.set_train_property(True):
        dropped = kd.nn.Dropout(0.5).apply({}, x, rngs={"dropout": jax.random.key(0)})
    assert set(np.unique(dropped)) == {0.0, 2.0}


def test_the_rate_of_dropout_may_be_traced_and_may_be_anything_up_to_1() -> None:
    x, rngs = jnp.ones((4, 50), jnp.bfloat16), {"dropout": jax.random.key(0)}

    def dropped(rate: Any) -> Any:
        return kd.nn.Dropout(rate).apply({}, x, rngs=rngs)

    with kd.nn.set_train_property(True):
        traced = jax.jit(jax.vmap(dropped))(jnp.asarray([0.0, 0.25, 1.0]))
        for got, rate in zip(traced, (0.0, 0.25, 1.0), strict=True):
            np.testing.assert_array_equal(got, dropped(rate))
        assert traced.dtype == x.dtype
        grad = jax.grad(lambda x: kd.nn.Dropout(1.0).apply({}, x, rngs=rngs).sum())(x)  # pyright: ignore
    np.testing.assert_array_equal(grad, jnp.zeros_like(x))


def test_models_take_a_traced_rate() -> None:
    def run(rate: Any) -> Any:
        model = kd.nn.MLP(hidden=4, features=2, dropout=rate, x="batch.x")
        return model.init_with_output({"params": jax.random.key(0), "dropout": jax.random.key(1)}, jnp.ones((3, 5)))[0]

    with kd.nn.set_train_property(True):
        assert jax.eval_shape(run, 0.5).shape == (3, 2)


@pytest.mark.parametrize(
    ("hidden", "widths"), [(8, [(6, 8), (8, 3)]), ((8, 5), [(6, 8), (8, 5), (5, 3)]), ((), [(6, 3)])]
)
def test_mlp_flattens_and_has_the_layers_asked_for(hidden: Any, widths: list[tuple[int, int]]) -> None:
    model = kd.nn.MLP(hidden=hidden, features=3, x="batch.x")
    output, variables = jax.eval_shape(model.init_with_output, jax.random.key(0), jnp.ones((7, 2, 3)))
    assert output.shape == (7, 3)
    assert [layer["kernel"].shape for _, layer in sorted(variables["params"].items())] == widths
