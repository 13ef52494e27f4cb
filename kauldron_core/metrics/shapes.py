"""Bringing labels, predictions and targets to one shape, without ever broadcasting."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from kauldron_core.ktyping import Array
from kauldron_core.metrics.mask import broadcast_mask

Labels: TypeAlias = Array["*b"] | Array["*b 1"] | Array["*b n"]
"""One class for each of `*b`. One-hot labels pass as far as `align_labels`, which refuses them with advice."""


def check_one_given(metric: Any, logits: Any, pred_labels: Any) -> None:
    """Refuses predictions that are given twice or not at all.

    Raises:
      ValueError: With the name of the metric.
    """
    if (logits is None) == (pred_labels is None):
        raise ValueError(f"{type(metric).__name__} needs either logits or pred_labels")


def align_labels(labels: Any, shape: tuple[int, ...], *, what: str = "labels") -> jax.Array:
    """Returns `labels` in `shape`; a last dimension of size 1 may be there or not.

    Raises:
      ValueError: When the shapes differ otherwise.
    """
    labels = jnp.asarray(labels)
    if labels.shape in (shape, (*shape, 1)):
        return labels.reshape(shape)
    hint = " Are they one-hot? Then take their argmax." if labels.shape[:-1] == shape else ""
    raise ValueError(f"{what} of shape {labels.shape} do not fit {shape} or {(*shape, 1)}.{hint}")


def drop_last_one(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape that two label arrays share when a last dimension of size 1 is optional."""
    return shape[:-1] if len(shape) == len(other) + 1 and shape[-1] == 1 else shape


def align_scores(labels: Any, logits: Any) -> tuple[jax.Array, jax.Array]:
    """Returns labels `*b` and scores `*b c`; c is 1 when the logits have one score for each label."""
    labels, logits = jnp.asarray(labels), jnp.asarray(logits)
    shape = drop_last_one(labels.shape, logits.shape)
    if logits.shape in (shape, (*shape, 1)):
        return labels.reshape(shape), logits.reshape((*shape, 1))
    return align_labels(labels, logits.shape[:-1]), logits


def weights_of(mask: Any, shape: tuple[int, ...]) -> jax.Array:
    """Returns a weight for each value of `shape`: integers, which count exactly, for booleans and for no mask.

    Raises:
      MaskError: When the mask does not match the leading dimensions of `shape`.
    """
    if mask is None:
        return jnp.ones(shape, jnp.int32)
    weights = broadcast_mask(mask, shape)
    return weights.astype(jnp.int32 if weights.dtype == bool else jnp.promote_types(weights.dtype, jnp.float32))


def as_float(values: Any) -> jax.Array:
    """Returns `values` in at least float32."""
    values = jnp.asarray(values)
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


def difference(preds: Any, targets: Any) -> jax.Array:
    """Returns `preds - targets` in at least float32.

    Raises:
      ValueError: When the shapes differ.
    """
    preds, targets = as_float(preds), as_float(targets)
    if preds.shape != targets.shape:
        raise ValueError(f"preds of shape {preds.shape} and targets of shape {targets.shape} have to be equal in shape")
    return preds - targets
