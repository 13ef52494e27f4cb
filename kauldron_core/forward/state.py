"""The state of a training run: everything that a step changes, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import flax.struct
import jax
import jax.numpy as jnp


@flax.struct.dataclass
class Health:
    """The flag of the first non-finite step. It rides in the state, so reading it never costs a step.

    Attributes:
      first_bad_step: Number of that step, counted from 1; 0 while all is well.
      first_bad_loss: Index of its first non-finite loss in the order of the names; -1 if only a gradient was.
      num_bad_steps: How many steps were not finite.
    """

    first_bad_step: jax.Array
    first_bad_loss: jax.Array
    num_bad_steps: jax.Array

    @classmethod
    def good(cls) -> Health:
        """Returns the flag of a run in which nothing went wrong."""
        return cls(first_bad_step=jnp.int32(0), first_bad_loss=jnp.int32(-1), num_bad_steps=jnp.int32(0))

    def after(self, step: jax.Array, *, is_good: jax.Array, bad_loss: jax.Array) -> Health:
        """Returns the flag after the update that led to `step`. Traced."""
        is_first = ~is_good & (self.first_bad_step == 0)
        return Health(
            first_bad_step=jnp.where(is_first, step, self.first_bad_step),
            first_bad_loss=jnp.where(is_first, bad_loss, self.first_bad_loss),
            num_bad_steps=self.num_bad_steps + ~is_good,
        )


@flax.struct.dataclass
class TrainState:
    """The state between two steps. `step` is the number of updates made.

    Attributes:
      step: Updates made so far, an int32 scalar.
      params: Parameters of the model.
      collections: The other variables of the model, such as batch statistics, by collection.
      opt_state: State of the optimizer.
      health: Whether losses and gradients were finite so far.
    """

    step: jax.Array
    params: Any
    collections: Mapping[str, Any]
    opt_state: Any
    health: Health

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self:
            """Returns a copy with some fields changed."""
            ...

    @classmethod
    def create(cls, *, params: Any, collections: Mapping[str, Any], opt_state: Any) -> TrainState:
        """Returns the state before the first step."""
        return cls(step=jnp.int32(0), params=params, collections=collections, opt_state=opt_state, health=Health.good())
