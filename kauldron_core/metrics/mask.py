"""The one rule for masks, of losses and metrics alike.

A mask matches the *leading* dimensions of the values, each equal or 1, and is extended on the right: (32,) on
(32, 10) means rows. Whatever fits no rule is an error; nothing is broadcast the way NumPy does it, from the right.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


class MaskError(ValueError):
    """A mask whose shape does not fit the values."""


def align_mask(mask: Any, values_shape: tuple[int, ...]) -> jax.Array:
    """Returns `mask` with as many dimensions as the values, each equal to theirs or 1.

    Args:
      mask: Booleans, or weights. Dimensions of size 1 at its end that the values lack are dropped: (32, 1) fits (32,).
      values_shape: Shape of the values.

    Raises:
      MaskError: When the mask does not match the leading dimensions of the values.
    """
    mask = jnp.asarray(mask)
    shape = mask.shape
    while len(shape) > len(values_shape) and shape[-1] == 1:
        shape = shape[:-1]
    pairs = zip(shape, values_shape, strict=False)
    if len(shape) > len(values_shape) or any(size not in (1, wanted) for size, wanted in pairs):
        raise MaskError(_misfit(mask.shape, values_shape))
    return mask.reshape(shape + (1,) * (len(values_shape) - len(shape)))


def broadcast_mask(mask: Any, values_shape: tuple[int, ...]) -> jax.Array:
    """Returns `mask` with exactly the shape of the values."""
    return jnp.broadcast_to(align_mask(mask, values_shape), values_shape)


def combine_masks(mask: Any, other: Any) -> Any:
    """Mask of what passes both: AND of booleans, else the weights of one where the other passes.

    Either may be None, which passes everything. Both are aligned to the same leading dimensions.

    Raises:
      MaskError: When their dimensions disagree.
    """
    if mask is None or other is None:
        return other if mask is None else mask
    mask, other = jnp.asarray(mask), jnp.asarray(other)
    ndim = max(mask.ndim, other.ndim)
    left = mask.reshape(mask.shape + (1,) * (ndim - mask.ndim))
    right = other.reshape(other.shape + (1,) * (ndim - other.ndim))
    if any(a != b and 1 not in (a, b) for a, b in zip(left.shape, right.shape, strict=True)):
        raise MaskError(f"masks of shape {mask.shape} and {other.shape} do not belong to the same values")
    if left.dtype == bool and right.dtype == bool:
        return left & right
    return apply_mask(left, right) if right.dtype == bool else apply_mask(right, left)


def apply_mask(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Returns `values` times the aligned `mask`, and 0 wherever the mask is 0, even where the values are not finite."""
    if mask.dtype == bool:
        return jnp.where(mask, values, jnp.zeros((), values.dtype))
    weighted = values * mask
    return jnp.where(mask != 0, weighted, jnp.zeros((), weighted.dtype))


def _misfit(mask_shape: tuple[int, ...], values_shape: tuple[int, ...]) -> str:
    message = (
        f"mask of shape {mask_shape} does not fit values of shape {values_shape}: "
        "a mask matches the leading dimensions (each equal or 1) and is extended on the right."
    )
    if mask_shape and mask_shape == values_shape[-len(mask_shape) :]:
        reshaped = (1,) * (len(values_shape) - len(mask_shape)) + mask_shape
        message += f" To mask the trailing ones, give it the shape {reshaped}."
    return message
