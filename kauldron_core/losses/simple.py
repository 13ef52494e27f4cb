"""Losses that are values already, or differences of predictions and targets."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.ktyping import Array, Float, Scalar, typechecked
from kauldron_core.losses.loss import Loss
from kauldron_core.metrics.shapes import difference


@dataclasses.dataclass(frozen=True, kw_only=True)
class Value(Loss):
    """Values that are a loss already, such as an auxiliary loss that the model returns."""

    values: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, values: Array["*b"] | Scalar) -> jax.Array:
        return jnp.asarray(values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AbsoluteValue(Loss):
    """Absolute values, such as of weights that should become sparse."""

    values: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, values: Array["*b"] | Scalar) -> jax.Array:
        return jnp.abs(values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class L1(Loss):
    """Absolute difference, element by element."""

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, preds: Array["*b"], targets: Array["*b"]) -> Float["*b"]:
        return jnp.abs(difference(preds, targets))


@dataclasses.dataclass(frozen=True, kw_only=True)
class L2(Loss):
    """Squared difference, element by element."""

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, preds: Array["*b"], targets: Array["*b"]) -> Float["*b"]:
        return jnp.square(difference(preds, targets))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Huber(Loss):
    """Half the squared difference up to `delta`, linear beyond.

    Source: Huber, Robust Estimation of a Location Parameter (1964), equation for the function rho.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    delta: float = 1.0

    @typechecked
    def get_values(self, preds: Array["*b"], targets: Array["*b"]) -> Float["*b"]:
        size = jnp.abs(difference(preds, targets))
        inside = jnp.minimum(size, self.delta)
        return 0.5 * inside**2 + self.delta * (size - inside)
