"""Rules that give every array of a tree its sharding, whatever the mesh."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from kauldron_core.errors import ConfigError
from kauldron_core.sharding.mesh import AnyMesh, check_axes, current_mesh, data_axes
from kauldron_core.sharding.partition import Dims, NamedLeaf, as_dims, axes_of, leaves_of, num_parts, placed

_MIB = 2**20


class ShardingRule(abc.ABC):
    """Base class: says which dimensions of an array are split. Called with a tree it uses the mesh in scope.

    To extend: a frozen dataclass with `dims`, or a plain function from a tree to shardings.
    """

    @abc.abstractmethod
    def dims(self, leaf: NamedLeaf, mesh: AnyMesh) -> Dims:
        """Returns which axes of `mesh` split which dimensions of `leaf`."""

    def shardings(self, tree: Any, mesh: AnyMesh, *, at: str = "sharding") -> Any:
        """Returns a sharding for each array of `tree`.

        Args:
          tree: Arrays or their shapes, or variables with Flax metadata around them.
          mesh: The mesh.
          at: Config path for messages.

        Raises:
          ConfigError: If the rule does not fit the mesh or the arrays.
        """
        check_axes(self.named_axes, mesh, at=at)
        leaves, structure = leaves_of(tree)
        return jax.tree.unflatten(structure, [self.sharding(leaf, mesh, at=at) for leaf in leaves])

    @property
    def named_axes(self) -> tuple[str, ...]:
        """Axes that the mesh has to have."""
        return ()

    def sharding(self, leaf: NamedLeaf, mesh: AnyMesh, *, at: str) -> NamedSharding:
        """Returns the sharding of one array."""
        return placed(self.dims(leaf, mesh), leaf, mesh, at=at)

    def __call__(self, tree: Any) -> Any:
        return self.shardings(tree, current_mesh())


@dataclasses.dataclass(frozen=True)
class Split(ShardingRule):
    """The same dimensions of every array: `Split((None, 'model'))`.

    Attributes:
      spec: Axes for each leading dimension, as in a `PartitionSpec`; `()` splits nothing.
    """

    spec: Any = ()

    def __post_init__(self):
        dims = as_dims(self.spec)
        if dims is None:
            raise ConfigError(f"sharding: {self.spec!r} must hold an axis, a tuple of axes or None for each dimension.")
        object.__setattr__(self, "spec", dims)

    @property
    def named_axes(self) -> tuple[str, ...]:
        return tuple(axis for dim in self.spec for axis in axes_of(dim))

    def dims(self, leaf: NamedLeaf, mesh: AnyMesh) -> Dims:
        return self.spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OnAxis(ShardingRule):
    """Base class of rules that split one dimension.

    Attributes:
      axis: An axis or several; what None takes is the rule's own.
    """

    axis: str | tuple[str, ...] | None = None

    def __post_init__(self):
        if self.axis is not None and not isinstance(self.axis, str):
            object.__setattr__(self, "axis", tuple(self.axis))

    @property
    def named_axes(self) -> tuple[str, ...]:
        return axes_of(self.axis)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstDim(_OnAxis):
    """The first dimension of every array; scalars are on each device.

    Attributes:
      axis: An axis or several; None takes those that split batches (`DATA_AXES`).
    """

    def dims(self, leaf: NamedLeaf, mesh: AnyMesh) -> Dims:
        return (_batch_axis(mesh) if self.axis is None else self.axis,) if leaf.spec.shape else ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class FSDPSharding(_OnAxis):
    """The largest dimension that divides, of every array that is worth it.

    Attributes:
      axis: The axis; None takes `fsdp`, else those that split batches.
      min_size_to_shard_mb: Smaller arrays are on each device.
    """

    min_size_to_shard_mb: float = 4

    def dims(self, leaf: NamedLeaf, mesh: AnyMesh) -> Dims:
        shape = leaf.spec.shape
        if math.prod(shape) * _item_size(leaf.spec) < self.min_size_to_shard_mb * _MIB:
            return ()
        axis = self._axis(mesh)
        for index in sorted(range(len(shape)), key=lambda index: -shape[index]):
            if shape[index] and shape[index] % num_parts(axis, mesh) == 0:
                return (*(None,) * index, axis)
        return ()

    def _axis(self, mesh: AnyMesh) -> str | tuple[str, ...]:
        if self.axis is not None:
            return self.axis
        return "fsdp" if "fsdp" in mesh.axis_names else _batch_axis(mesh)


def _batch_axis(mesh: AnyMesh) -> str | tuple[str, ...]:
    axes = data_axes(mesh.axis_names)
    return axes[0] if len(axes) == 1 else axes


def _item_size(spec: Any) -> int:
    # A typed random key has no NumPy type.
    return 1 if jnp.issubdtype(spec.dtype, jax.dtypes.extended) else np.dtype(spec.dtype).itemsize


REPLICATED = Split()
"""Every array is whole on each device."""

FIRST_DIM = FirstDim()
"""The first dimension of every array is split over the axes for batches."""
