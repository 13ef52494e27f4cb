"""The state of an optimizer split as the parameters that it is about."""

from __future__ import annotations

from typing import Any

import jax

from kauldron_core.sharding.mesh import AnyMesh
from kauldron_core.sharding.partition import leaves_of
from kauldron_core.sharding.rules import REPLICATED


def follow_params(opt_state: Any, params: Any, shardings: Any, mesh: AnyMesh) -> Any:
    """Returns a sharding for each array of `opt_state`: that of its parameter, where it has the shape of one.

    Momenta, averages and the like are trees like the parameters, somewhere in the state: their paths end with the path
    of the parameter. That holds for wrapped, masked and chained optimizers alike, and needs to know none of them.
    Counts, and factors that are smaller than their parameter (Adafactor), are on each device.

    Args:
      opt_state: Shapes of the state.
      params: Shapes of the parameters.
      shardings: Their shardings.
      mesh: The mesh.
    """
    known = {
        tuple(leaf.path.split(".")): (leaf.spec.shape, sharding)
        for leaf, sharding in zip(leaves_of(params)[0], jax.tree.leaves(shardings), strict=True)
    }
    leaves, structure = leaves_of(opt_state)
    found = []
    for leaf in leaves:
        segments = tuple(leaf.path.split("."))
        suffixes = (segments[start:] for start in range(len(segments)))
        shape, sharding = next((known[suffix] for suffix in suffixes if suffix in known), (None, None))
        found.append(sharding if shape == leaf.spec.shape else REPLICATED.sharding(leaf, mesh, at="sharding.opt_state"))
    return jax.tree.unflatten(structure, found)
