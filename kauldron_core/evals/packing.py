"""States of many batches to the host at once: small leaves travel in one array a batch, bit for bit.

An array costs some ten microseconds on its way to the host, whatever its size, and so does a merge in Python. Both are
more than a small model needs for a batch.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core import metrics as metrics_lib
from kauldron_core.forward import AuxiliariesState
from kauldron_core.metrics.host import fetch, widen

_MAX_ENTRIES = 64
_Spec = tuple[tuple[int, ...], str] | None


@functools.partial(jax.tree_util.register_dataclass, data_fields=("small", "large"), meta_fields=("specs", "structure"))
@dataclasses.dataclass(frozen=True)
class Packed:
    """A tree of arrays, its small leaves in one.

    Attributes:
      small: uint32[n], the bits of the small leaves of 32 bits.
      large: The other leaves.
      specs: Shape and type of each leaf in order, None for those in `large`.
      structure: Structure of the tree.
    """

    small: jax.Array
    large: list[jax.Array]
    specs: tuple[_Spec, ...]
    structure: Any


def pack(tree: Any) -> Packed:
    """Returns `tree` as one object. Traced."""
    leaves, structure = jax.tree.flatten(tree)
    specs = tuple(_spec(leaf) for leaf in leaves)
    bits = [
        jax.lax.bitcast_convert_type(leaf, jnp.uint32).ravel()
        for leaf, spec in zip(leaves, specs, strict=True)
        if spec is not None
    ]
    small = jnp.concatenate(bits) if bits else jnp.zeros(0, jnp.uint32)
    large = [leaf for leaf, spec in zip(leaves, specs, strict=True) if spec is None]
    return Packed(small, large, specs, structure)


def merged(packed: Sequence[Packed]) -> AuxiliariesState:
    """Returns the merge of the states of batches with one structure, on the host, in 64 bits."""
    stacked = _stacked(packed)
    parts = {
        field.name: {name: _merged(state, len(packed)) for name, state in getattr(stacked, field.name).items()}
        for field in dataclasses.fields(stacked)
    }
    return AuxiliariesState(**parts)


def _spec(leaf: Any) -> _Spec:
    is_small = leaf.dtype in (jnp.float32, jnp.int32, jnp.uint32) and leaf.size <= _MAX_ENTRIES
    return (leaf.shape, str(leaf.dtype)) if is_small else None


def _stacked(packed: Sequence[Packed]) -> AuxiliariesState:
    """Returns the states with a leading dimension for the batches."""
    first = packed[0]
    small, large = fetch(([part.small for part in packed], [part.large for part in packed]))
    bits, others = np.stack(small), iter(zip(*large, strict=True))
    leaves, start = [], 0
    for spec in first.specs:
        if spec is None:
            leaves.append(np.stack(next(others)))
            continue
        shape, dtype = spec
        size = int(np.prod(shape))
        leaves.append(bits[:, start : start + size].view(dtype).reshape(len(packed), *shape))
        start += size
    return jax.tree.unflatten(first.structure, leaves)


def _merged(state: Any, count: int) -> Any:
    if type(state).merge is metrics_lib.AverageState.merge:
        # Two sums: those of all batches are one addition in NumPy.
        return state.replace(total=widen(state.total).sum(0), count=widen(state.count).sum(0))
    of_batches = (jax.tree.map(lambda leaf, row=row: leaf[row], state) for row in range(count))
    return functools.reduce(lambda left, right: left.merge(right), map(metrics_lib.to_host, of_batches))
