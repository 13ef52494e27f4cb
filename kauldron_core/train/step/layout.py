"""`Layout`: on which devices the state and the batches of a step are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from kauldron_core.forward import TrainState
from kauldron_core.sharding import ShardingStrategy, with_sharding_constraint


class Layout:
    """The arrays of one step over several devices.

    Args:
      strategy: What is split how.
      state: Shapes of the state.
      variables: Shapes of the model's variables, with their Flax metadata.
      batch: Shapes of the global batch.
    """

    def __init__(self, strategy: ShardingStrategy, *, state: TrainState, variables: Any, batch: Any):
        self._strategy = strategy
        self.state: TrainState = strategy.state_shardings(state, variables=variables)
        strategy.batch_shardings(batch)  # Refused here, before anything starts.
        self.replicated = NamedSharding(strategy.device_mesh, PartitionSpec())

    def template(self, spec: TrainState) -> TrainState:
        """Returns the shapes of a state with their shardings in them."""
        return with_sharding_constraint(spec, self.state)

    def put(self, batch: Any) -> Any:
        """Returns a batch, of which each process gives its part, as global arrays."""
        return self._strategy.put_batch(batch)

    def put_stack(self, stack: Any) -> Any:
        """Returns batches stacked along a new first dimension as global arrays."""
        return self._strategy.put_stack(stack)


def zeros_like(spec: Any) -> Any:
    """Returns arrays of zeros with the shapes and types of `spec`. NumPy: no program has to be compiled for them."""
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), spec)


def stacked(batches: Sequence[Any], *, size: int) -> Any:
    """Returns batches stacked along a new first dimension of `size`; what is missing is filled with zeros."""

    def stack(*leaves: Any) -> np.ndarray:
        first = np.asarray(leaves[0])
        whole = np.empty((size, *first.shape), first.dtype)
        for index, leaf in enumerate(leaves):
            whole[index] = leaf
        whole[len(leaves) :] = 0
        return whole

    return jax.tree.map(stack, *batches)
