"""Losses of the angle between vectors."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.ktyping import Float, Num, typechecked
from kauldron_core.losses.loss import Loss
from kauldron_core.metrics import weights_of
from kauldron_core.metrics.shapes import as_float

# What stands in for minus infinity: its exponential is 0 and its gradient is a number.
_VERY_SMALL = -1e9


@dataclasses.dataclass(frozen=True, kw_only=True)
class NegativeCosineSimilarity(Loss):
    """Minus the cosine of the angle between two vectors: -1 when they point the same way.

    Attributes:
      preds: Shape `*b n`.
      targets: The same shape.
      eps: Length below which a vector counts as shorter than it is, so that 0 has a gradient.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    eps: float = 1e-8

    @typechecked
    def get_values(self, preds: Num["*b n"], targets: Num["*b n"]) -> Float["*b"]:
        return -_cosine(preds, targets, self.eps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cosine(Loss):
    """1 minus the cosine of the angle between two vectors: 0 when they point the same way, at most 2.

    Attributes:
      preds: Shape `*b n`.
      targets: The same shape.
      eps: Length below which a vector counts as shorter than it is, so that 0 has a gradient.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    eps: float = 1e-8

    @typechecked
    def get_values(self, preds: Num["*b n"], targets: Num["*b n"]) -> Float["*b"]:
        return 1 - _cosine(preds, targets, self.eps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrastive(Loss):
    """InfoNCE: each example has to find its partner among the partners of the whole batch.

    An example that the mask leaves out is left out on both sides: it has no loss, and nobody is told from it. The
    value depends on the batch size, because more partners are harder to tell apart.

    Source: van den Oord, Li and Vinyals, Representation Learning with Contrastive Predictive Coding (2018), equation 4;
    Radford et al., CLIP (2021), figure 3, for the symmetric form.

    Attributes:
      preds: Vectors of shape `b n`.
      targets: Their partners, row by row.
      temperature: What the cosines are divided by.
      symmetric: Whether the partners have to find the examples too, and the mean of both is taken.
      eps: Length below which a vector counts as shorter than it is.
    """

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    temperature: float = 0.1
    symmetric: bool = True
    eps: float = 1e-8

    depends_on_batch_size: ClassVar[bool] = True

    @typechecked
    def get_values(self, preds: Num["b n"], targets: Num["b n"], mask: Any = None) -> Float["b"]:
        counts = weights_of(mask, jnp.shape(preds)[:1]) != 0
        # A row of padding may hold anything, and 0 times NaN is NaN.
        preds, targets = (jnp.where(counts[:, None], as_float(rows), 0.0) for rows in (preds, targets))
        cosines = jnp.matmul(_unit(preds, self.eps), _unit(targets, self.eps).T, precision=jax.lax.Precision.HIGHEST)
        logits = cosines / self.temperature
        values = _find(logits, counts)
        return (values + _find(logits.T, counts)) / 2 if self.symmetric else values


def _find(logits: jax.Array, counts: jax.Array) -> jax.Array:
    """Returns how hard it is for each row to find its own column among those that count."""
    masked = jnp.where(counts[None, :], logits, _VERY_SMALL)
    return jax.nn.logsumexp(masked, axis=-1) - jnp.diagonal(logits)


def _cosine(preds: Any, targets: Any, eps: float) -> jax.Array:
    preds, targets = as_float(preds), as_float(targets)
    return (_unit(preds, eps) * _unit(targets, eps)).sum(axis=-1)


def _unit(vectors: jax.Array, eps: float) -> jax.Array:
    """Returns the vectors scaled to length 1; the root is taken of a positive number only."""
    squares = jnp.square(vectors).sum(axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(squares, eps**2))
