"""Trees of arrays: rows of a batch, records and batches into each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core.errors import ConfigError


def leaf_paths(tree: Any) -> list[tuple[str, Any]]:
    """Returns the leaves with their paths as text, `image` or `boxes.labels`."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in flat]


def num_rows(tree: Any) -> int:
    """Returns the length of the leading dimension.

    Raises:
      ConfigError: If the leaves differ in it, or one has none.
    """
    lengths: dict[str, int] = {}
    for path, leaf in leaf_paths(tree):
        shape = np.shape(leaf)
        if not shape:
            raise ConfigError(f"{path or 'the data'} is a scalar: every array needs a leading dimension of examples.")
        lengths[path] = shape[0]
    if not lengths:
        raise ConfigError("the data holds no arrays.")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{path}: {length}" for path, length in lengths.items())
        raise ConfigError(f"the arrays differ in their number of examples ({listed}).")
    return next(iter(lengths.values()))


def take_rows(tree: Any, rows: np.ndarray) -> Any:
    """Returns a copy of the given rows of every leaf."""
    return jax.tree.map(lambda leaf: leaf.take(rows, axis=0), tree)


def stack(records: Sequence[Any]) -> Any:
    """Returns one batch of `records`.

    Raises:
      ConfigError: If the records differ in structure or in the shape of a leaf.
    """
    try:
        return jax.tree.map(lambda *leaves: _stack_leaves(leaves), *records)
    except ValueError as error:
        raise ConfigError(f"the records do not fit into one batch: {_difference(records) or error}") from error


def _stack_leaves(leaves: Sequence[Any]) -> np.ndarray:
    if isinstance(leaves[0], (str, bytes)):
        return object_array(leaves)
    return np.stack([np.asarray(leaf) for leaf in leaves])


def object_array(values: Sequence[Any]) -> np.ndarray:
    """Returns text or bytes as they are: NumPy's own types for them cut off zeros at the end."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _difference(records: Sequence[Any]) -> str | None:
    """Difference in structure between a record and the first one, in words."""
    first = {path: np.shape(leaf) for path, leaf in leaf_paths(records[0])}
    for record in records[1:]:
        shapes = {path: np.shape(leaf) for path, leaf in leaf_paths(record)}
        if shapes.keys() != first.keys():
            return f"one has {sorted(first)}, another {sorted(shapes)}."
        for path, shape in shapes.items():
            if shape != first[path]:
                return f"{path} has shape {first[path]} in one and {shape} in another. Pad, crop or resize it."
    return None


def unstack(batch: Any) -> list[Any]:
    """Returns the records of `batch`, the inverse of `stack`."""
    leaves, structure = jax.tree.flatten(batch)
    return [structure.unflatten(row) for row in zip(*leaves, strict=True)]


def pad_rows(batch: Any, example: Any, count: int) -> Any:
    """Returns `batch` with `count` copies of `example` (a batch of one) appended; `batch` may be None."""
    padding = jax.tree.map(lambda leaf: np.repeat(leaf, count, axis=0), example)
    if batch is None:
        return padding
    return jax.tree.map(lambda real, pad: np.concatenate([real, pad]), batch, padding)


def spec_of(batch: Any, num_examples: int) -> Any:
    """Returns shapes and dtypes of `batch`, with `num_examples` as leading dimension.

    Raises:
      ConfigError: If a leaf is text or an object: no device holds such.
    """
    for path, leaf in leaf_paths(batch):
        if np.asarray(leaf).dtype.kind in "OSUM":
            raise ConfigError(
                f"{path} holds {np.asarray(leaf).dtype} values, which a model cannot take. "
                f"Drop it: kd.data.Elements(drop=[{path!r}]), or turn it into numbers."
            )
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((num_examples, *np.shape(leaf)[1:]), leaf.dtype), batch)
