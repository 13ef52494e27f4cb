"""Whether losses and gradients were finite so far: a flag that rides in the state, so reading it costs no step."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Health(NamedTuple):
    """What the flag says. In a state it is one `int32[3]`, since every array of a state costs time at every step.

    Attributes:
      first_bad_step: Number of the first step that was not finite, counted from 1; 0 while all is well.
      first_bad_loss: Index of its first non-finite loss in the order of the names; -1 if only a gradient was.
      num_bad_steps: How many steps were not finite.
    """

    first_bad_step: int
    first_bad_loss: int
    num_bad_steps: int

    @classmethod
    def of(cls, flag: jax.Array) -> Health:
        """Returns what `flag` says. Waits for the device."""
        return cls(*jax.device_get(flag).tolist())


def good_health() -> jax.Array:
    """Returns the flag of a run in which nothing went wrong."""
    return jnp.array([0, -1, 0], jnp.int32)


def health_after(flag: jax.Array, step: jax.Array, *, is_good: jax.Array, bad_loss: jax.Array | int = -1) -> jax.Array:
    """Returns the flag after the update that led to `step`. Traced."""
    # Elementwise on purpose: one kernel, where putting three numbers together would be four.
    entry = jnp.arange(3)
    here = jnp.where(entry == 0, step, jnp.where(entry == 1, bad_loss, flag + 1))
    stays = is_good | ((entry < 2) & (flag[0] > 0))
    return jnp.where(stays, flag, here)
