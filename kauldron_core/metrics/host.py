"""Moving states to the host, where they merge in 64 bits: a count passes 2**24 and a sum does not drift."""

from __future__ import annotations

import contextlib
from typing import Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

_T = TypeVar("_T")
_WIDE = (np.dtype(np.float64), np.dtype(np.int64))


def fetch(tree: _T) -> _T:
    """Returns `tree` with its arrays as NumPy arrays of the same dtype; those that span hosts are gathered whole."""
    return jax.device_get(jax.tree.map(_gather, tree))


def widen(value: Any) -> Any:
    """Returns a NumPy array or number in the widest type of its kind: float64, int64, complex128. Booleans stay."""
    array = np.asarray(value)
    for kind, wide in ((jnp.floating, np.float64), (jnp.integer, np.int64), (jnp.complexfloating, np.complex128)):
        if jnp.issubdtype(array.dtype, kind):
            # A uint64 has no room in an int64; it cannot come from a device without x64.
            return array if array.dtype == np.uint64 else array.astype(wide)
    return array


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


def _gather(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return leaf
    if leaf.is_fully_replicated:
        return leaf.addressable_data(0)
    from jax.experimental import multihost_utils  # loads jax.experimental only where there are several hosts

    return multihost_utils.process_allgather(leaf, tiled=True)
