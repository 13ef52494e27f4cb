"""Schedules that branch on their numbers, as tables of their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Tabulated:
    """A schedule whose values are known for every count.

    Attributes:
      values: Shape (counts,); the last one stands for all later counts.
    """

    values: Any

    def __call__(self, count: Any) -> Any:
        """Returns the value at `count`."""
        return jnp.take(self.values, jnp.clip(count, 0, len(self.values) - 1))


def tabulate(schedule: Callable[[Any], Any], *, num_steps: int) -> np.ndarray:
    """Returns the values of a schedule at the counts 0 to `num_steps`."""
    # Optimizers count in 32 bits, and the type of a value follows from that of the count.
    values = jax.jit(jax.vmap(schedule))(jnp.arange(num_steps + 1, dtype=jnp.int32))
    return np.asarray(values)


def is_schedule(value: Any) -> bool:
    """Returns whether `value` can be called with a count and gives a number for each."""
    if not callable(value):
        return False
    try:
        found = jax.eval_shape(value, jax.ShapeDtypeStruct((), jnp.int32))
    except Exception:  # Whatever a callable that is no schedule raises.
        return False
    return isinstance(found, jax.ShapeDtypeStruct) and found.shape == () and jnp.issubdtype(found.dtype, jnp.floating)
