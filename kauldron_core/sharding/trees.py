"""Shardings of whole trees, from what a config or a model says about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import jax
from jax.sharding import Sharding

from kauldron_core import kontext
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.sharding.mesh import AnyMesh, current_mesh, in_mesh, mesh_in_scope
from kauldron_core.sharding.partition import as_dims, unboxed
from kauldron_core.sharding.rules import REPLICATED, ShardingRule, Split

ShardingTree: TypeAlias = Any
"""A tree whose leaves stand for whole subtrees of arrays. A leaf is one of

* None: nothing said; replicated in a strategy, left to the compiler in `with_sharding_constraint`,
* a rule (`FIRST_DIM`, `FSDPSharding()`, `PathRules(...)`),
* a `jax.sharding.Sharding`, a `PartitionSpec`, or the tuple of names that it holds,
* a function from the subtree (arrays or shapes) to any of these, or to a tree of them.

Parts of a mapping that are not named are None.
"""

_T = TypeVar("_T")


def resolved(shardings: ShardingTree, tree: Any, mesh: AnyMesh, *, at: str = "sharding") -> Any:
    """Returns a sharding for each array of `tree`; None where nothing is said.

    Args:
      shardings: See `ShardingTree`.
      tree: Arrays or their shapes; with Flax metadata for rules that read it.
      mesh: The mesh of rules and specs.
      at: Config path for messages.

    Raises:
      ConfigError: If a rule does not fit.
    """
    if shardings is None or isinstance(shardings, Sharding):
        return jax.tree.map(lambda _: shardings, unboxed(tree))
    if isinstance(shardings, ShardingRule):
        return shardings.shardings(tree, mesh, at=at)
    if (parts := _parts(shardings, tree, at=at)) is not None:
        subtrees, structure = _children(tree)
        return jax.tree.unflatten(
            structure,
            [resolved(parts.get(key), sub, mesh, at=f"{at}.{key}") for key, sub in subtrees],
        )
    if (dims := as_dims(shardings)) is not None:
        return Split(dims).shardings(tree, mesh, at=at)
    if callable(shardings):
        plain = unboxed(tree)
        with in_mesh(mesh):
            found = shardings(plain)
        return resolved(found, plain, mesh, at=at)
    raise ConfigError(f"{at}: {shardings!r} is no rule, sharding, axis names, function or tree of them.")


def complete(shardings: ShardingTree, tree: Any, mesh: AnyMesh, *, at: str = "sharding") -> Any:
    """Shardings as of `resolved`, and for the other arrays the one that splits nothing."""
    found = resolved(shardings, tree, mesh, at=at)
    return jax.tree.map(
        lambda known, other: other if known is None else known,
        found,
        replicated(tree, mesh),
        is_leaf=lambda leaf: leaf is None,
    )


def replicated(tree: Any, mesh: AnyMesh) -> Any:
    """Returns the sharding that splits nothing, for each array of `tree`."""
    return REPLICATED.shardings(tree, mesh)


def with_sharding_constraint(tree: _T, shardings: ShardingTree) -> _T:
    """Returns `tree` with its arrays placed so. In a traced function, or outside; works on shapes too.

        x = kd.sharding.with_sharding_constraint(x, kd.sharding.FIRST_DIM)

    Rules and axis names mean the mesh of the strategy that is training, else of `jax.set_mesh`, else all devices.

    Args:
      tree: Arrays, or their shapes, which then carry the sharding.
      shardings: See `ShardingTree`; None leaves arrays as they are.
    """
    leaves, structure = jax.tree.flatten(tree)
    if not leaves or _is_alone(leaves):
        return tree
    found = resolved(shardings, tree, current_mesh())
    flat = jax.tree.leaves(found, is_leaf=lambda leaf: leaf is None)
    return jax.tree.unflatten(structure, [_constrained(a, s) for a, s in zip(leaves, flat, strict=True)])


def _is_alone(leaves: Sequence[Any]) -> bool:
    """Returns whether arrays have nowhere else to be: one device, on which the axes of a model may not exist at all."""
    is_spec = isinstance(leaves[0], jax.ShapeDtypeStruct)
    return not is_spec and mesh_in_scope() is None and jax.device_count() == 1


def _constrained(array: Any, sharding: Sharding | None) -> Any:
    if sharding is None:
        return array
    if isinstance(array, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding, weak_type=array.weak_type)
    return jax.lax.with_sharding_constraint(array, sharding)


def _parts(shardings: Any, tree: Any, *, at: str) -> Mapping[Any, Any] | None:
    """Shardings of the children of `tree` by key; None if they are given for the whole."""
    if isinstance(shardings, Mapping):
        if not isinstance(tree, Mapping):
            raise ConfigError(f"{at}: names {', '.join(map(str, shardings))}, but there is no mapping of arrays there.")
        for name in shardings:
            if name not in tree:
                raise ConfigError(unknown_name("name", str(name), map(str, tree), at=at))
        return shardings
    is_sequence = isinstance(shardings, (tuple, list)) and isinstance(tree, (tuple, list))
    if is_sequence and not any(isinstance(part, str) for part in shardings) and len(shardings) == len(tree):
        fields = getattr(tree, "_fields", range(len(tree)))
        return dict(zip(fields, shardings, strict=True))
    return None


def _children(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """Returns the children of `tree` with their keys, and the structure that they were in."""
    flat, structure = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda child: child is not tree)
    return [(kontext.Path.from_jax_path(path).parts[0], child) for path, child in flat], structure
