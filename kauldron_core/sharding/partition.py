"""Which mesh axes split which dimensions of one array: written as plain data, checked against its shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
from flax.core import meta
from jax.sharding import NamedSharding, PartitionSpec

from kauldron_core import kontext
from kauldron_core.errors import ConfigError
from kauldron_core.sharding.mesh import AnyMesh, check_axes

Dims: TypeAlias = tuple[str | tuple[str, ...] | None, ...]
"""For each leading dimension the axes that split it: `('data', None, ('fsdp', 'model'))`."""


class NamedLeaf(NamedTuple):
    """One array of a tree.

    Attributes:
      path: Where it is in the tree, `encoder.layers.0.kernel`.
      spec: Its shape and type.
      names: Names that Flax metadata gives to its dimensions; None without metadata.
    """

    path: str
    spec: Any
    names: tuple[Any, ...] | None = None


class IndivisibleError(ConfigError):
    """A size does not divide by the axes that are to split it."""


def leaves_of(tree: Any) -> tuple[list[NamedLeaf], Any]:
    """Returns the arrays of `tree`, and its structure; both without the boxes that hold Flax metadata."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_box)
    leaves = [
        NamedLeaf(dotted(path), unboxed(leaf), tuple(getattr(leaf, "names", ())) if is_box(leaf) else None)
        for path, leaf in flat
    ]
    return leaves, jax.tree.structure(unboxed(tree))


def is_box(leaf: Any) -> bool:
    """Returns whether `leaf` is a variable with Flax metadata (`nn.with_partitioning` and the like)."""
    return isinstance(leaf, meta.AxisMetadata)


def unboxed(tree: Any) -> Any:
    """Returns `tree` without Flax metadata. Unlike `flax.linen.unbox` it leaves arrays where they are, shapes too."""

    def plain(box: meta.AxisMetadata[Any]) -> Any:
        return box.unbox(apply_constraint=False) if isinstance(box, meta.Partitioned) else box.unbox()

    return meta.map_axis_meta(plain, tree)


def dotted(path: Sequence[Any]) -> str:
    """Returns a path of JAX as text, with indices as segments."""
    return ".".join(str(part) for part in kontext.Path.from_jax_path(path).parts)


def as_dims(spec: Any) -> Dims | None:
    """Axes by dimension of `spec` (a `PartitionSpec`, a name, a list or tuple of names), else None."""
    if isinstance(spec, str):
        return (spec,)
    if not isinstance(spec, (PartitionSpec, tuple, list)):
        return None
    dims = tuple(tuple(dim) if isinstance(dim, list) else dim for dim in spec)
    names = [name for dim in dims for name in (dim if isinstance(dim, tuple) else (dim,))]
    return dims if all(name is None or isinstance(name, str) for name in names) else None


def placed(dims: Dims, leaf: NamedLeaf, mesh: AnyMesh, *, at: str) -> NamedSharding:
    """Returns the sharding of one array.

    Raises:
      ConfigError: If an axis is unknown or used twice, or the array has too few dimensions.
      IndivisibleError: If a size does not divide.
    """
    shape = tuple(leaf.spec.shape)
    where = f"{at}: {leaf.path or 'the array'} of shape {shape}"
    if len(dims) > len(shape) and any(dims[len(shape) :]):
        raise ConfigError(f"{where} has {len(shape)} dimensions, {dims} splits {len(dims)}.")
    used = [axis for dim in dims for axis in axes_of(dim)]
    check_axes(used, mesh, at=at)
    for axis in used:
        if used.count(axis) > 1:
            raise ConfigError(f"{where}: axis {axis!r} is used twice in {dims}.")
    for size, dim in zip(shape, dims, strict=False):
        if size % (parts := num_parts(dim, mesh)):
            raise IndivisibleError(f"{where}: {size} does not divide by {parts}, the size of axis {dim!r}.")
    # Without what says nothing: programs are cached by the exact spec.
    dims = dims[: len(shape)]
    while dims and not dims[-1]:
        dims = dims[:-1]
    return NamedSharding(mesh, PartitionSpec(*dims))


def axes_of(dim: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Returns the axes that split one dimension."""
    return (dim,) if isinstance(dim, str) else dim or ()


def num_parts(dim: str | tuple[str, ...] | None, mesh: AnyMesh) -> int:
    """Returns into how many parts one dimension is split."""
    return math.prod(mesh.shape[axis] for axis in axes_of(dim))
