"""On which devices the trials of a pack are, and what of their batches."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kauldron_core.sharding import ShardingStrategy
from kauldron_core.train.trainer import Trainer

_TRIAL, _BATCH = "trial", "batch"
_PRICE_OF_A_ROUND = 0.25
"""What a step costs more for each round in which devices add up what the parts of a batch gave. A guess: it depends on
the model, and only says how much is to be won before a batch is split."""
_TIMES_STATE = 3
"""How often the state of a trial is in memory: as it is, its gradient, and what the optimizer makes of it."""


@dataclasses.dataclass(frozen=True)
class Placement:
    """A grid of devices: trials along one side, parts of the batch along the other.

    Attributes:
      num_rows: Rows of the states, a multiple of `trial_devices`. Those beyond the trials are ghosts: they repeat the
        last trial, and nobody looks at them.
      trial_devices: Devices among which the trials are dealt out.
      batch_devices: Devices among which the batch of a trial is split.
      reason: Why it is so, for a person.
    """

    num_rows: int
    trial_devices: int = 1
    batch_devices: int = 1
    reason: str = ""

    @property
    def num_devices(self) -> int:
        return self.trial_devices * self.batch_devices

    @functools.cached_property
    def mesh(self) -> Mesh | None:
        """The grid; None where there is one device."""
        if self.num_devices == 1:
            return None
        devices = np.asarray(jax.devices()[: self.num_devices])
        return Mesh(devices.reshape(self.trial_devices, self.batch_devices), (_TRIAL, _BATCH))

    @property
    def of_rows(self) -> NamedSharding | None:
        """The sharding of whatever has a first dimension for the row; None where there is one device."""
        return None if self.mesh is None else NamedSharding(self.mesh, PartitionSpec(_TRIAL))

    def put_rows(self, tree: Any) -> Any:
        """Returns arrays with a first dimension for the row on the devices."""
        return jax.device_put(tree, self.of_rows)

    def put_batch(self, batch: Any, *, has_rows: bool, is_stack: bool) -> Any:
        """Returns a batch on the devices.

        Args:
          batch: The batch.
          has_rows: Whether it has a dimension for the row.
          is_stack: Whether it has another one before that for the step.
        """
        mesh = self.mesh
        if mesh is None:
            return batch

        def put(leaf: Any) -> Any:
            spec: list[str | None] = [None] * is_stack + [_TRIAL] * has_rows
            if np.ndim(leaf) > len(spec) and np.shape(leaf)[len(spec)] % self.batch_devices == 0:
                spec.append(_BATCH)
            return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec(*spec)))

        return jax.tree.map(put, batch)

    def spread(self, function: Callable[..., Any], axes: Sequence[int | None]) -> Callable[..., Any]:
        """Returns a function that is mapped over rows, with each device working on its own rows alone.

        Args:
          function: The function. What it returns has a first dimension for the row.
          axes: The dimension of the row in each argument, None where it has none.
        """
        if self.mesh is None or self.batch_devices > 1:
            return function  # Parts of batches have to be added up, which the compiler sees to.
        specs = tuple(PartitionSpec(*[None] * axis, _TRIAL) if axis is not None else PartitionSpec() for axis in axes)
        return jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=PartitionSpec(_TRIAL), check_vma=False)


def choose(
    num_trials: int, *, num_devices: int, batch_size: int, trial_bytes: int = 0, memory_bytes: int | None = None
) -> Placement:
    """Returns where the trials of a pack go.

    Trials are dealt out first: they have nothing to tell each other. A batch is split where devices would be left over,
    or where so many trials as a device then had would not fit into its memory.

    Args:
      num_trials: How many there are.
      num_devices: How many devices there are.
      batch_size: Examples in a batch of one trial.
      trial_bytes: Size of the state of one trial.
      memory_bytes: Memory of a device; None does not look.
    """
    grids = [
        _grid(num_trials, wanted, num_devices, batch_size) for wanted in range(1, min(num_trials, num_devices) + 1)
    ]
    fitting = [grid for grid in grids if _bytes(grid, trial_bytes) <= (memory_bytes or float("inf"))]
    found = min(fitting, key=_work) if fitting else min(grids, key=lambda grid: _bytes(grid, trial_bytes))
    return dataclasses.replace(found, reason=_reason(found, num_trials, num_devices))


def why_alone(trainer: Trainer) -> str | None:
    """Returns why a trial can't share devices with others, None if it can."""
    if trainer.sharding == ShardingStrategy():
        return None
    return "sharding splits it over devices in a way of its own"


def _grid(num_trials: int, wanted: int, num_devices: int, batch_size: int) -> Placement:
    each = -(-num_trials // wanted)
    trial_devices = -(-num_trials // each)
    left = num_devices // trial_devices
    batch_devices = max(parts for parts in range(1, left + 1) if batch_size % parts == 0)
    return Placement(each * trial_devices, trial_devices, batch_devices)


def _work(grid: Placement) -> tuple[float, int]:
    """Returns how long a step takes, and how many devices it takes for that."""
    price = 1 + _PRICE_OF_A_ROUND * math.log2(grid.batch_devices)
    return grid.num_rows / grid.num_devices * price, grid.num_devices


def _bytes(grid: Placement, trial_bytes: int) -> float:
    return grid.num_rows / grid.trial_devices * trial_bytes * _TIMES_STATE


def _reason(grid: Placement, num_trials: int, num_devices: int) -> str:
    if grid.num_devices == 1:
        return "one device"
    each = grid.num_rows // grid.trial_devices
    trials = f"{each} of {num_trials} trials on each of {grid.trial_devices} devices"
    if grid.batch_devices > 1:
        kind = "groups of devices" if grid.trial_devices > 1 else "group of devices"
        trials = f"{each} of {num_trials} trials on each of {grid.trial_devices} {kind}, "
        trials += f"batches split over the {grid.batch_devices} of a group"
    unused = num_devices - grid.num_devices
    return trials + (f", {unused} unused" if unused else "")
