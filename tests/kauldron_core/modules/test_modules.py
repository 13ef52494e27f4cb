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


@pytest.mark.parametrize(
    ("hidden", "widths"), [(8, [(6, 8), (8, 3)]), ((8, 5), [(6, 8), (8, 5), (5, 3)]), ((), [(6, 3)])]
)
def test_mlp_flattens_and_has_the_layers_asked_for(hidden: Any, widths: list[tuple[int, int]]) -> None:
    model = kd.nn.MLP(hidden=hidden, features=3, x="batch.x")
    output, variables = model.init_with_output(jax.random.key(0), jnp.ones((7, 2, 3)))
    assert output.shape == (7, 3)
    assert [layer["kernel"].shape for _, layer in sorted(variables["params"].items())] == widths
