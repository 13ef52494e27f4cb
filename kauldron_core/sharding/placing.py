"""Arrays of this process made into global ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from kauldron_core.errors import ConfigError
from kauldron_core.sharding.mesh import current_mesh
from kauldron_core.sharding.trees import ShardingTree, complete

_T = TypeVar("_T")


def device_put(tree: _T, shardings: ShardingTree) -> _T:
    """Returns `tree` as global arrays.

    Several processes: each gives its own part of what is split between them, and the same of everything else.

    Args:
      tree: Arrays or numbers of this process.
      shardings: See `ShardingTree`; None is replicated. Rules mean the mesh in scope, or all devices.
    """
    mesh = current_mesh()
    mesh = jax.sharding.get_mesh() if isinstance(mesh, AbstractMesh) else mesh
    arrays = jax.tree.map(lambda leaf: leaf if hasattr(leaf, "shape") else np.asarray(leaf), tree)
    found = complete(shardings, arrays, mesh)
    if jax.process_count() == 1:
        return jax.device_put(arrays, found)
    return jax.tree.map(lambda leaf, s: jax.make_array_from_process_local_data(s, np.asarray(leaf)), arrays, found)


def global_shapes(arrays: Sequence[Any], *, axis: int = 0) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Returns the shapes of the global arrays of which `arrays` are the parts of this process.

    Args:
      arrays: The parts.
      axis: The dimension that the processes share; arrays without it are the same in all.
    """
    return tuple(jax.ShapeDtypeStruct(_global_shape(np.shape(leaf), axis), _dtype(leaf)) for leaf in arrays)


def from_processes(
    parts: Sequence[Any], spec: Sequence[Any], shardings: Sequence[Any], *, axis: int = 0
) -> Sequence[Any]:
    """Returns the global arrays of which each process has an equal part.

    Args:
      parts: Those of this process.
      spec: Shapes of the whole, see `global_shapes`.
      shardings: For each array.
      axis: The dimension that the processes share.

    Raises:
      ConfigError: If a size does not divide by the number of devices where it has to.
    """
    if jax.process_count() == 1:
        return jax.device_put(parts, shardings)
    return [_from_processes(*each, axis) for each in zip(parts, spec, shardings, strict=True)]


def _from_processes(part: Any, whole: jax.ShapeDtypeStruct, sharding: NamedSharding, axis: int) -> jax.Array:
    part, shape = np.asarray(part), whole.shape
    if len(shape) <= axis or _own_size(sharding, shape, axis) == part.shape[axis]:
        return jax.make_array_from_process_local_data(sharding, part, shape)
    # The devices of one process want rows that another has read: all get theirs from a batch split over every device.
    mesh = sharding.mesh
    if shape[axis] % mesh.size:
        raise ConfigError(
            f"sharding.batch: a batch of {shape[axis]} does not divide by the {mesh.size} devices, as it has to where "
            "the axes that split it do not tell the processes apart."
        )
    split = NamedSharding(mesh, PartitionSpec(*(None,) * axis, mesh.axis_names))
    return _moved(jax.make_array_from_process_local_data(split, part, shape), sharding)


def _own_size(sharding: NamedSharding, shape: tuple[int, ...], axis: int) -> int:
    """Returns how much of a dimension the devices of this process hold together; all if nothing tells them apart."""
    indices = sharding.addressable_devices_indices_map(shape).values()
    slices = {index[axis].indices(shape[axis])[:2] for index in indices if index is not None}
    return sum(stop - start for start, stop in slices)


def _moved(array: jax.Array, sharding: NamedSharding) -> jax.Array:
    return jax.jit(_same, out_shardings=sharding)(array)


def _same(array: jax.Array) -> jax.Array:
    return array


def _global_shape(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    if len(shape) <= axis:
        return shape
    return (*shape[:axis], shape[axis] * jax.process_count(), *shape[axis + 1 :])


def _dtype(leaf: Any) -> Any:
    return leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
