"""Compares what a checkpoint holds with what a model needs, before anything is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from kauldron_core.errors import ConfigError, DamagedFile

_MAX_LINES = 12
_MAX_DIGITS = 15  # of a dimension
# Measured with Orbax: what it says of a checkpoint, and of each array.
_BYTES_BESIDE, _BYTES_BESIDE_EACH = 3_000, 750


class StateMismatch(ConfigError):
    """The checkpoint was written by another model or optimizer than the config describes."""


def describe(state: Any) -> dict[str, str]:
    """Returns `float32[64,10]` and the like for each array of `state`, by its path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {path_text(path): spec_text(leaf) for path, leaf in leaves}


def path_text(path: tuple[Any, ...]) -> str:
    """Returns a path of JAX as `opt_state.0.mu`: one word for a key, a field or an index."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def check(saved: Mapping[str, str], template: Any, *, place: str) -> None:
    """Raises unless `template` has the same arrays as the checkpoint, of the same shapes and types.

    Args:
      saved: What the checkpoint says that it holds, from `describe`.
      template: The state as the config describes it.
      place: The checkpoint's path.

    Raises:
      StateMismatch: With one entry for each array that differs.
    """
    compare(saved, describe(template), place=place)


def compare(saved: Mapping[str, str], wanted: Mapping[str, str], *, place: str) -> None:
    """Does what `check` does, for a part of the state or one that was renamed; see there."""
    differences = [f"{path}: not in the checkpoint" for path in wanted if path not in saved]
    differences += [f"{path}: only in the checkpoint" for path in saved if path not in wanted]
    differences += [
        f"{path}: {saved[path]} in the checkpoint, {spec} in the config"
        for path, spec in wanted.items()
        if path in saved and saved[path] != spec
    ]
    if differences:
        more = f"; and {len(differences) - _MAX_LINES} more" if len(differences) > _MAX_LINES else ""
        raise StateMismatch(f"{place}: does not fit the config: {'; '.join(differences[:_MAX_LINES])}{more}.")


def spec_text(leaf: Any) -> str:
    """Returns `float32[64,10]` and the like for an array or its shape."""
    dtype = jax.dtypes.result_type(leaf) if not hasattr(leaf, "dtype") else leaf.dtype
    shape = getattr(leaf, "shape", ())
    return f"{dtype}[{','.join(map(str, shape))}]"


def read_spec(text: str) -> jax.ShapeDtypeStruct:
    """Returns the shape and type that `spec_text` wrote.

    Raises:
      DamagedFile: A ValueError, if it is no such text.
    """
    name, _, dimensions = text.removesuffix("]").partition("[")
    sizes = [size for size in dimensions.split(",") if size]
    if not all(size.isascii() and size.isdecimal() and len(size) < _MAX_DIGITS for size in sizes):
        raise DamagedFile(f"{text[:80]!r} is no shape and type, so the checkpoint's metadata is damaged")
    shape = tuple(map(int, sizes))
    for implementation in ("threefry2x32", "rbg", "unsafe_rbg") if name.startswith("key<") else ():
        dtype = jax.eval_shape(lambda implementation=implementation: jax.random.key(0, impl=implementation)).dtype
        if str(dtype) == name:
            return jax.ShapeDtypeStruct(shape, dtype)
    try:
        if not name.isidentifier():  # NumPy takes other texts for structures, and reads code in them.
            raise TypeError(name)
        return jax.ShapeDtypeStruct(shape, jnp.dtype(name))
    except (TypeError, ValueError):
        raise DamagedFile(f"{text[:80]!r} is no shape and type, so the checkpoint's metadata is damaged") from None


def num_bytes(spec: jax.ShapeDtypeStruct) -> int:
    """Returns how much memory an array takes."""
    return math.prod(spec.shape) * spec.dtype.itemsize


def expected_bytes(specs: Any) -> int:
    """Returns about how much a checkpoint of such a state takes on disk: its arrays, and what Orbax writes of each."""
    arrays = jax.tree.leaves(specs)
    return _BYTES_BESIDE + sum(_BYTES_BESIDE_EACH + num_bytes(array) for array in arrays)


def spec_bytes(text: str) -> int:
    """Returns how much memory an array takes whose shape and type are written as `float32[64,10]`."""
    return num_bytes(read_spec(text))
