"""The width of states: 64 bits on the host, where a count passes 2**24, and no less than 32 on a device."""

from __future__ import annotations

import contextlib
from typing import Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

_T = TypeVar("_T")
_WIDE = (np.dtype(np.float64), np.dtype(np.int64))
_BYTES = 4
"""Of a number that is wide enough on a device."""


def fetch(tree: _T) -> _T:
    """Returns `tree` with its arrays as NumPy arrays of the same dtype; those that span hosts are gathered whole."""
    return jax.device_get(jax.tree.map(_gather, tree))


def widen(value: Any) -> Any:
    """Returns a NumPy array or number in the widest type of its kind: float64, int64, complex128. Booleans stay.

    An array on a device becomes at least float32 or int32, as wide as all devices compute.
    """
    if isinstance(value, jax.Array):
        return value.astype(_wide_on_device(value.dtype))
    array = np.asarray(value)
    for kind, wide in ((jnp.floating, np.float64), (jnp.integer, np.int64), (jnp.complexfloating, np.complex128)):
        if jnp.issubdtype(array.dtype, kind):
            # A uint64 has no room in an int64; it cannot come from a device without x64.
            return array if array.dtype == np.uint64 else array.astype(wide)
    return array


def is_narrow(tree: Any) -> bool:
    """Returns whether `tree` holds arrays on a device that do not have 32 bits: sums in them stop growing early."""
    return any(isinstance(leaf, jax.Array) and leaf.dtype.itemsize < _BYTES for leaf in jax.tree.leaves(tree))


def is_on_host(tree: Any) -> bool:
    """Returns whether `tree` holds NumPy values and no traced ones, so that its numbers may be computed in 64 bits."""
    leaves = jax.tree.leaves(tree)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return False
    return any(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves)


def is_wide(tree: Any) -> bool:
    """Returns whether every leaf is a NumPy value in 64 bits already, so that nothing is left to do."""
    leaves = jax.tree.leaves(tree)
    return all(isinstance(leaf, np.ndarray | np.generic) and leaf.dtype in _WIDE for leaf in leaves)


def has_tracer(tree: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def in_64_bits(condition: bool) -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which JAX computes in 64 bits too, so that a user's `jnp.add` does not narrow a count."""
    return jax.enable_x64(True) if condition else contextlib.nullcontext()


def _wide_on_device(dtype: Any) -> Any:
    for kind, wide in ((jnp.floating, jnp.float32), (jnp.integer, jnp.int32)):
        if jnp.issubdtype(dtype, kind) and dtype.itemsize < _BYTES:
            return wide
    return dtype


def _gather(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return leaf
    if leaf.is_fully_replicated:
        return leaf.addressable_data(0)
    from jax.experimental import multihost_utils  # loads jax.experimental only where there are several hosts

    return multihost_utils.process_allgather(leaf, tiled=True)
