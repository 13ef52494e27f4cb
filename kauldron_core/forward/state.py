"""The state of a training run: everything that a step changes, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from kauldron_core.forward.health import good_health


class TrainState(NamedTuple):
    """The state between two steps. A named tuple, because JAX takes it apart and builds it anew at every step.

    Attributes:
      step: Updates made so far, an int32 scalar.
      params: Parameters of the model.
      collections: The other variables of the model, such as batch statistics, by collection.
      opt_state: State of the optimizer.
      health: Whether losses and gradients were finite so far, see `Health.of`.
    """

    step: jax.Array
    params: Any
    collections: Mapping[str, Any]
    opt_state: Any
    health: jax.Array

    @classmethod
    def create(cls, *, params: Any, collections: Mapping[str, Any], opt_state: Any) -> TrainState:
        """Returns the state before the first step."""
        return cls(jnp.int32(0), params, collections, opt_state, good_health())

    def replace(self, **changes: Any) -> TrainState:
        """Returns a copy with some fields changed."""
        return self._replace(**changes)
