"""`ShardingStrategy`: where everything that a training step reads and writes is kept."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kauldron_core.sharding import placing
from kauldron_core.sharding.mesh import MeshSpec, built, in_mesh
from kauldron_core.sharding.opt_state import follow_params
from kauldron_core.sharding.partition import IndivisibleError
from kauldron_core.sharding.rules import FIRST_DIM, REPLICATED
from kauldron_core.sharding.trees import ShardingTree, complete, replicated, with_sharding_constraint

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardingStrategy:
    """A mesh, and what of an experiment is split over it. Equal strategies give equal programs.

        cfg.sharding = kd.sharding.ShardingStrategy(
            mesh=kd.sharding.MeshSpec(axes=("data", "fsdp"), ici_shape=(2, -1)),
            params=kd.sharding.FSDPSharding(),
        )

    The default is data parallelism: batches are split over all devices, the rest is on each. See `ShardingTree` for
    what the fields take.

    Attributes:
      mesh: The devices.
      batch: For batches.
      params: For parameters.
      collections: For the other variables of the model, by collection.
      opt_state: For the state of the optimizer; None follows the parameters.
      aux: For what a step returns besides the state.
    """

    mesh: MeshSpec = dataclasses.field(default_factory=MeshSpec)
    batch: ShardingTree = FIRST_DIM
    params: ShardingTree = REPLICATED
    collections: ShardingTree = REPLICATED
    opt_state: ShardingTree = None
    aux: ShardingTree = REPLICATED

    @property
    def is_trivial(self) -> bool:
        """Whether there is one device and so nothing to split."""
        return jax.device_count() == 1 and self.device_mesh.size == 1

    @property
    def device_mesh(self) -> Mesh:
        """The mesh over the devices there are.

        Raises:
          ConfigError: If it does not fit them.
        """
        return built(self.mesh, tuple(jax.devices()))

    def state_shardings(self, spec: _T, *, variables: Mapping[str, Any] | None = None) -> _T:
        """Returns a sharding for each array of a state.

        Args:
          spec: Shapes of a state with `step`, `params`, `collections`, `opt_state`, without Flax metadata.
          variables: Shapes of the variables as `model.init` returns them, for rules that read Flax metadata.

        Raises:
          ConfigError: If a rule does not fit.
        """
        mesh = self.device_mesh
        boxed = dict(variables or {})
        state: Any = spec
        params = self._whole("params", boxed.get("params", state.params), mesh)
        collections = {name: boxed.get(name, tree) for name, tree in state.collections.items()}
        if self.opt_state is None:
            opt_state = follow_params(state.opt_state, state.params, params, mesh)
        else:
            opt_state = self._whole("opt_state", state.opt_state, mesh)
        rest = {name: replicated(getattr(state, name), mesh) for name in state._fields}
        split = {
            "params": params,
            "collections": self._whole("collections", collections, mesh),
            "opt_state": opt_state,
        }
        return state._replace(**rest | split)

    def state_template(self, spec: _T, *, variables: Mapping[str, Any] | None = None) -> _T:
        """Returns the shapes with their shardings in them, as a checkpoint is restored into. See `state_shardings`."""
        return with_sharding_constraint(spec, self.state_shardings(spec, variables=variables))

    def batch_shardings(self, spec: Any, *, uneven_ok: bool = False) -> Any:
        """Returns a sharding for each array of the global batch `spec`.

        Args:
          spec: Shapes of the batch.
          uneven_ok: Whether a batch that does not divide is put whole on each device; otherwise it is an error.
        """
        try:
            return self._whole("batch", spec, self.device_mesh)
        except IndivisibleError:
            if not uneven_ok:
                raise
            return replicated(spec, self.device_mesh)

    def aux_shardings(self, spec: Any) -> Any:
        """Returns a sharding for each array that a step returns besides the state."""
        return self._whole("aux", spec, self.device_mesh)

    def put_batch(self, batch: _T, *, uneven_ok: bool = False) -> _T:
        """Returns a batch on the devices.

        Args:
          batch: The batch as a pipeline yields it: with several processes, the part of this one.
          uneven_ok: See `batch_shardings`; for the last batch of an evaluation.
        """
        return self._put(batch, uneven_ok, is_stack=False)

    def put_stack(self, batches: _T) -> _T:
        """Returns several batches, stacked along a new first dimension, on the devices. Each is split as one alone."""
        return self._put(batches, False, is_stack=True)

    def fitting(self, devices: Sequence[Any] | None = None) -> ShardingStrategy:
        """Returns this strategy, with another mesh where the devices there are (or `devices`) are too few or many."""
        return dataclasses.replace(self, mesh=self.mesh.fitting(devices))

    @contextlib.contextmanager
    def set_global_mesh(self) -> Iterator[Mesh]:
        """Makes the mesh the one that a model means by `with_sharding_constraint`. Inside the traced function.

        Whatever calls the model needs it, `eval_shape` and evaluations too. On one device it does nothing.
        """
        with contextlib.nullcontext() if self.is_trivial else in_mesh(self.device_mesh):
            yield self.device_mesh

    def _whole(self, field: str, tree: Any, mesh: Mesh) -> Any:
        return complete(getattr(self, field), tree, mesh, at=f"sharding.{field}")

    def _put(self, batch: Any, uneven_ok: bool, *, is_stack: bool) -> Any:
        leaves, structure = jax.tree.flatten(batch)
        spec = placing.global_shapes(leaves, axis=int(is_stack))
        try:
            shardings = _remembered(self, structure, spec, uneven_ok, is_stack)
        except TypeError:  # The strategy holds what has no hash, a tree perhaps.
            shardings = _of_batch(self, structure, spec, uneven_ok, is_stack)
        return jax.tree.unflatten(structure, placing.from_processes(leaves, spec, shardings, axis=int(is_stack)))


def fitted(experiment: _T) -> _T:
    """Returns an experiment for the devices that are there: what was trained on eight is looked at on one.

    Args:
      experiment: A dataclass with a field `sharding`; anything else comes back as it is.
    """
    strategy = getattr(experiment, "sharding", None)
    if not isinstance(strategy, ShardingStrategy) or (fitting := strategy.fitting()) == strategy:
        return experiment
    return dataclasses.replace(cast(Any, experiment), sharding=fitting)


def _of_batch(
    strategy: ShardingStrategy, structure: Any, spec: Sequence[Any], uneven_ok: bool, is_stack: bool
) -> list[NamedSharding]:
    each = [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in spec] if is_stack else spec
    found = jax.tree.leaves(strategy.batch_shardings(jax.tree.unflatten(structure, each), uneven_ok=uneven_ok))
    if not is_stack:
        return found
    return [NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec)) for sharding in found]


# Steps and steps get batches of the same shapes.
_remembered = functools.lru_cache(maxsize=64)(_of_batch)
