"""Which examples a summary keeps: exactly the first k, or exactly a random k, however the data was batched.

The random k are those with the smallest numbers out of a hash of the example's own content and a seed. So the choice
depends neither on batches, hosts and the order of merging, nor on what a process drew before.
"""

from __future__ import annotations

import zlib
from typing import Any, Literal, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core.metrics import State
from kauldron_core.metrics.host import has_tracer

Keep = Literal["first", "random"]

# Source: the finalizer of MurmurHash3 (Appleby, public domain).
_MIX = (0x85EBCA6B, 0xC2B2AE35)
_GOLDEN = 0x9E3779B9


@flax.struct.dataclass
class SampleState(State[Any]):
    """Some examples, at most `num` of them after `compute`.

    Attributes:
      values: A tree of arrays of shape `(m, ...)`.
      order: Shape `(m,)`: what decides who stays; smaller stays. None keeps those that came first.
      is_real: Shape `(m,)`: False for rows that a mask has left out.
      num: How many stay.
    """

    values: Any = None
    order: Any = None
    is_real: Any = None
    num: int = flax.struct.field(pytree_node=False, default=0)

    @classmethod
    def empty(cls) -> Self:
        return cls()

    @classmethod
    def from_values(cls, values: Any, *, num: int, mask: Any = None, keep: Keep = "first", seed: int = 0) -> Self:
        """Returns the sample of one batch.

        Args:
          values: A tree of arrays whose first axis is the examples.
          num: How many examples to keep.
          mask: Shape `(n,)`; examples where it is 0 are not there.
          keep: `'first'` or `'random'`.
          seed: Of the random choice.
        """
        if is_text(values):
            values = np.asarray(values, dtype=object)
        length = len(jax.tree.leaves(values)[0])
        is_real = np.ones(length, bool) if mask is None else jnp.asarray(mask).reshape(length) != 0
        order = content_hash(values, seed) if keep == "random" else None
        return cls(values=values, order=order, is_real=is_real, num=num)._cut()

    def merge(self, other: Any) -> Self:
        if self.values is None or other.values is None:
            return other if self.values is None else self
        both = [self._on_host(), other._on_host()]

        def join(*arrays: Any) -> Any:
            return np.concatenate(arrays)

        order = None if self.order is None else join(*(state.order for state in both))
        merged = self.replace(
            values=jax.tree.map(join, *(state.values for state in both)),
            order=order,
            is_real=join(*(state.is_real for state in both)),
        )
        return merged._cut()

    def compute(self) -> Any:
        """Returns the tree of arrays with the examples that stay, or None when there are none."""
        if self.values is None:
            return None
        state = self._on_host()
        rows = np.flatnonzero(state.is_real)[: self.num]
        return jax.tree.map(lambda array: array[rows], state.values)

    def widened(self) -> Self:
        return self  # Examples keep their dtype.

    def _cut(self) -> Self:
        """Returns the state with the rows that stay, in the order of choice; those left out come last."""
        leaves = jax.tree.leaves(self)
        xp: Any = np if all(isinstance(leaf, np.ndarray) for leaf in leaves) else jnp
        rank = xp.zeros(len(self.is_real), xp.uint32) if self.order is None else self.order
        rows = xp.lexsort((xp.asarray(rank), ~xp.asarray(self.is_real)))[: self.num]
        return self.replace(
            values=jax.tree.map(lambda array: xp.asarray(array)[rows], self.values),
            order=None if self.order is None else xp.asarray(self.order)[rows],
            is_real=xp.asarray(self.is_real)[rows],
        )

    def _on_host(self) -> Self:
        if has_tracer((self.values, self.is_real)):
            raise TypeError("states that collect examples cannot merge or compute inside jit; return them first")
        return jax.tree.map(np.asarray, self)


def is_text(values: Any) -> bool:
    """Returns whether `values` are strings, which live on the host only."""
    first = values[0] if isinstance(values, list | tuple) and values else values
    return isinstance(first, str | bytes) or getattr(values, "dtype", np.dtype(int)).kind in "OUS"


def content_hash(values: Any, seed: int) -> Any:
    """Returns one uint32 an example, the same wherever and however the example turns up."""
    if isinstance(values, np.ndarray) and values.dtype == object:
        return np.asarray([_hash_text(text, seed) for text in values], np.uint32)
    hashes = None
    for leaf in jax.tree.leaves(values):
        words = _words(jnp.asarray(leaf))
        place = jnp.arange(words.shape[1], dtype=jnp.uint32) * jnp.uint32(_GOLDEN) + jnp.uint32(seed & 0xFFFFFFFF)
        mixed = _mix(words ^ _mix(place)).sum(axis=1, dtype=jnp.uint32)
        hashes = mixed if hashes is None else _mix(hashes) ^ mixed
    return _mix(hashes)


def _words(array: jax.Array) -> jax.Array:
    """Returns the bits of each example as a row of uint32."""
    if jnp.issubdtype(array.dtype, jnp.floating):
        array = jax.lax.bitcast_convert_type(array.astype(jnp.float32), jnp.uint32)
    return array.reshape(len(array), -1).astype(jnp.uint32)


def _mix(x: Any) -> Any:
    for shift, factor in zip((16, 13), _MIX, strict=True):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return x ^ (x >> 16)


def _hash_text(text: Any, seed: int) -> int:
    data = text if isinstance(text, bytes) else str(text).encode()
    return zlib.crc32(data, seed & 0xFFFFFFFF)
