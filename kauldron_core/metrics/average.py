"""`AverageState`: a mean kept as sum and count, so that uneven batches merge exactly."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core.metrics.host import is_on_host
from kauldron_core.metrics.mask import align_mask, apply_mask
from kauldron_core.metrics.state import MetricT, State

_INT32_MAX = 2**31 - 1


@flax.struct.dataclass
class AverageState(State[MetricT]):
    """The mean of all values seen, each weighted by its mask.

    Attributes:
      total: Sum of mask times value.
      count: Sum of the mask over all values: an integer where it is exact, the sum of the weights otherwise.
    """

    total: jax.Array | np.ndarray
    count: jax.Array | np.ndarray

    @classmethod
    def from_values(cls, values: Any, mask: Any = None) -> Self:
        """Returns the state of one batch.

        Booleans and small integers are summed exactly, everything else in at least float32.

        Args:
          values: An array of any shape; each element counts as one.
          mask: Booleans or weights for the leading dimensions of `values`. Where it is 0, the values may be anything.

        Raises:
          MaskError: When the mask does not fit the values.
        """
        values = jnp.asarray(values)
        values = values.astype(_sum_dtype(values))
        if mask is None:
            return cls(total=values.sum(), count=_count(values.size))
        mask = align_mask(mask, values.shape)
        if mask.dtype != bool:
            mask = mask.astype(jnp.promote_types(mask.dtype, jnp.float32))
        # The mask is summed before it is extended; each of its elements stands for as many values.
        extent = values.size // max(mask.size, 1)
        count = mask.sum(dtype=jnp.int32) * _count(extent) if mask.dtype == bool else mask.sum() * extent
        return cls(total=apply_mask(values, mask).sum(), count=count)

    @classmethod
    def empty(cls) -> Self:
        return cls(total=jnp.zeros((), jnp.float32), count=jnp.zeros((), jnp.int32))

    def merge(self, other: Any) -> Self:
        return self.replace(total=self.total + other.total, count=self.count + other.count)

    def compute(self) -> Any:
        """Returns the mean, and 0 for no values."""
        xp: ModuleType = np if is_on_host(self) else jnp
        is_empty = self.count == 0
        return xp.where(is_empty, 0.0, self.total / xp.where(is_empty, 1, self.count))


def _sum_dtype(values: jax.Array) -> Any:
    """Returns a dtype in which the sum of `values` is exact if there is one, and at least float32."""
    if values.dtype == bool:
        return jnp.int32
    if jnp.issubdtype(values.dtype, jnp.integer):
        bounds = jnp.iinfo(values.dtype)
        largest = max(abs(int(bounds.min)), int(bounds.max))
        return jnp.int32 if largest * values.size <= _INT32_MAX else jnp.promote_types(values.dtype, jnp.float32)
    return jnp.promote_types(values.dtype, jnp.float32)


def _count(number: int) -> jax.Array:
    return jnp.asarray(number, jnp.int32 if number <= _INT32_MAX else jnp.float32)
