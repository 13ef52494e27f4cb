"""Bringing labels and predictions to one shape, without ever broadcasting."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


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
