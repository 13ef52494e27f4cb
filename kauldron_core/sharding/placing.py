"""Arrays of this process made into global ones."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

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


def global_spec(batch: Any) -> Any:
    """Returns the shapes of the global batch of which `batch` is the part of this process."""
    num_processes = jax.process_count()

    def whole(leaf: Any) -> jax.ShapeDtypeStruct:
        shape = np.shape(leaf)
        shape = (shape[0] * num_processes, *shape[1:]) if shape else ()
        return jax.ShapeDtypeStruct(shape, np.asarray(leaf).dtype if not hasattr(leaf, "dtype") else leaf.dtype)

    return jax.tree.map(whole, batch)


def from_processes(batch: _T, spec: Any, shardings: Any) -> _T:
    """Returns the global batch whose first dimension is shared by the processes in equal parts.

    Args:
      batch: The part of this process.
      spec: Shapes of the whole, see `global_spec`.
      shardings: For each array.

    Raises:
      ConfigError: If the batch does not divide by the number of devices where it has to.
    """
    if jax.process_count() == 1:
        return jax.device_put(batch, shardings)
    return jax.tree.map(_from_processes, batch, spec, shardings)


def _from_processes(part: Any, whole: jax.ShapeDtypeStruct, sharding: NamedSharding) -> jax.Array:
    part = np.asarray(part)
    if not whole.shape or _own_rows(sharding, whole.shape) == part.shape[0]:
        return jax.make_array_from_process_local_data(sharding, part, whole.shape)
    # The devices of one process want rows that another has read: all get theirs from a batch split over every device.
    mesh = sharding.mesh
    if not isinstance(mesh, Mesh):
        raise ConfigError("sharding: a batch is placed on the devices of a mesh, not on an abstract one.")
    if whole.shape[0] % mesh.size:
        raise ConfigError(
            f"sharding.batch: a batch of {whole.shape[0]} does not divide by the {mesh.size} devices, as it has to "
            "where the axes that split it do not tell the processes apart."
        )
    split = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    return _moved(jax.make_array_from_process_local_data(split, part, whole.shape), sharding)


def _own_rows(sharding: NamedSharding, shape: tuple[int, ...]) -> int:
    """Returns how many rows the devices of this process hold together; all of them if nothing tells processes apart."""
    indices = sharding.addressable_devices_indices_map(shape).values()
    slices = {index[0].indices(shape[0])[:2] for index in indices if index is not None}
    return sum(stop - start for start, stop in slices)


def _moved(array: jax.Array, sharding: NamedSharding) -> jax.Array:
    return jax.jit(_same, out_shardings=sharding)(array)


def _same(array: jax.Array) -> jax.Array:
    return array
