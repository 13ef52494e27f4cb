"""Shapes and dtypes of trees, as text and as data for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_SHORT = {"bool": "bool", "bfloat16": "bf16"}
_KINDS = {"uint": "ui", "int": "i", "float": "f", "complex": "c"}


def json_spec_like(tree: Any) -> Any:
    """Returns `tree` with each array, or shape of one, as text such as `'f32[16 8 8]'`; the rest is data for JSON.

    `json_spec_like(ds.element_spec)` tells a batch to a person, to a file, or to another program.
    """
    if _is_array(tree):
        return spec_text(tree)
    if isinstance(tree, Mapping):
        return {str(key): json_spec_like(value) for key, value in tree.items()}
    if hasattr(tree, "_fields"):
        return {name: json_spec_like(getattr(tree, name)) for name in tree._fields}
    if isinstance(tree, list | tuple):
        return [json_spec_like(value) for value in tree]
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return {field.name: json_spec_like(getattr(tree, field.name)) for field in dataclasses.fields(tree)}
    return tree if isinstance(tree, str | int | float | bool | None) else repr(tree)


def spec_text(array: Any) -> str:
    """Returns dtype and shape of an array: `'f32[16 8 8]'`; without dimensions `'i32[]'`."""
    return f"{dtype_text(array.dtype)}[{' '.join(map(str, array.shape))}]"


def dtype_text(dtype: Any) -> str:
    """Returns a dtype in short: `'f32'`, `'ui8'`, `'bf16'`."""
    # NumPy knows no dtype of random keys.
    name = str(dtype if jnp.issubdtype(dtype, jax.dtypes.extended) else np.dtype(dtype))
    if name in _SHORT:
        return _SHORT[name]
    for kind, short in _KINDS.items():
        if name.startswith(kind) and name[len(kind) :].isdecimal():
            return short + name[len(kind) :]
    return name


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")
