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
_ALONE = -1
"""Stands for one batch, whose arrays have no dimension for it."""
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

    small: Any
    large: list[Any]
    specs: tuple[_Spec, ...]
    structure: Any


@dataclasses.dataclass(frozen=True)
class Stack:
    """What several batches gave in one call.

    Attributes:
      packed: Their states, each array with a first dimension for the batch.
      count: How many of them count, the first ones; the others were there to fill the call.
    """

    packed: Packed
    count: int


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


def merged(packed: Sequence[Packed | Stack]) -> AuxiliariesState:
    """Returns the merge of the states of batches with one structure, on the host, in 64 bits."""
    return merged_rows(gathered(packed))


def gathered(packed: Sequence[Packed | Stack]) -> Stack:
    """Returns the states of batches with one structure as one stack, on the host."""
    stacks = [one if isinstance(one, Stack) else Stack(one, _ALONE) for one in packed]
    fetched = fetch([(stack.packed.small, stack.packed.large) for stack in stacks])
    first = stacks[0].packed
    small = np.concatenate([_rows(array, stack) for stack, (array, _) in zip(stacks, fetched, strict=True)])
    columns = zip(*(large for _, large in fetched), strict=True)
    large = [
        np.concatenate([_rows(array, stack) for stack, array in zip(stacks, column, strict=True)]) for column in columns
    ]
    return Stack(Packed(small, large, first.specs, first.structure), len(small))


def split(stack: Stack, count: int) -> tuple[Stack, Stack]:
    """Returns the first `count` batches of a stack on the host, and the others."""
    parts = []
    for rows in (slice(count), slice(count, None)):
        small = stack.packed.small[rows]
        large = [leaf[rows] for leaf in stack.packed.large]
        parts.append(Stack(Packed(small, large, stack.packed.specs, stack.packed.structure), len(small)))
    return parts[0], parts[1]


def merged_rows(stack: Stack) -> AuxiliariesState:
    """Returns the merge of the states in a stack on the host."""
    states = _unpacked(stack.packed, stack.count)
    parts = {
        field.name: {name: _merged(state, stack.count) for name, state in getattr(states, field.name).items()}
        for field in dataclasses.fields(states)
    }
    return AuxiliariesState(**parts)


def _rows(array: Any, stack: Stack) -> np.ndarray:
    return array[None] if stack.count == _ALONE else array[: stack.count]


def _spec(leaf: Any) -> _Spec:
    is_small = leaf.dtype in (jnp.float32, jnp.int32, jnp.uint32) and leaf.size <= _MAX_ENTRIES
    return (leaf.shape, str(leaf.dtype)) if is_small else None


def _unpacked(packed: Packed, count: int) -> AuxiliariesState:
    """Returns states with a leading dimension for the batches."""
    bits, others = np.asarray(packed.small), iter(packed.large)
    leaves, start = [], 0
    for spec in packed.specs:
        if spec is None:
            leaves.append(next(others))
            continue
        shape, dtype = spec
        size = int(np.prod(shape))
        leaves.append(np.ascontiguousarray(bits[:, start : start + size]).view(dtype).reshape(count, *shape))
        start += size
    return jax.tree.unflatten(packed.structure, leaves)


def _merged(state: Any, count: int) -> Any:
    if type(state).merge is metrics_lib.AverageState.merge:
        # Two sums: those of all batches are one addition in NumPy.
        return state.replace(total=widen(state.total).sum(0), count=widen(state.count).sum(0))
    of_batches = (jax.tree.map(lambda leaf, row=row: leaf[row], state) for row in range(count))
    return functools.reduce(lambda left, right: left.merge(right), map(metrics_lib.to_host, of_batches))
