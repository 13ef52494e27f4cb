"""Turns built objects back into the data that builds them."""

from __future__ import annotations

import dataclasses
import enum
import functools
import pathlib
import types
from collections.abc import Mapping
from typing import Any

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.calls.public_names import importable_name
from kauldron_core.konfig.tree import marked
from kauldron_core.konfig.tree.arguments import PARTIAL
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import Node, is_a, kind_of

_LEAVES = (type(None), bool, int, float, complex, str, bytes, slice, type(...))


def export(obj: Any) -> Any:
    """Returns plain dicts, lists and leaves that `resolve` turns back into an equal object.

    Dataclasses (flax modules among them), named tuples, arrays, enums, functions and classes of modules, and what has
    a method `__konfig_export__` (which returns such a dict) can be exported. Fields that hold their default are left
    out.

    Raises:
      ConfigError: With the path of an object that cannot be.
    """
    return _export(obj, ())


def export_qualname(obj: Any) -> str:
    """Returns the qualified name of an object's class, or of a class or function itself.

    Raises:
      ConfigError: When it cannot be imported by name.
    """
    value = obj if isinstance(obj, type) or not hasattr(obj, "__dict__") or callable(obj) else kind_of(obj)
    name = importable_name(value) or importable_name(kind_of(obj))
    if name is None:
        raise ConfigError(f"{obj!r} has no name under which it can be imported")
    return name


def _export(obj: Any, path: tuple[Any, ...]) -> Any:
    if kind_of(obj) in _LEAVES or is_a(obj, (enum.Enum, pathlib.PurePath, Node)):
        return obj
    if hasattr(kind_of(obj), "__konfig_export__"):
        return _entries(obj.__konfig_export__(), path)
    if marked.is_number_of_numpy(obj):
        return obj
    if is_a(obj, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return {CONST: _name(obj, path)}
    if is_a(obj, functools.partial):
        return _partial(obj, path)
    if hasattr(obj, "__array__") and hasattr(obj, "dtype"):
        return _array(obj, path)
    if is_a(obj, tuple) and hasattr(obj, "_fields"):
        return _call(obj, obj._asdict(), path)
    if dataclasses.is_dataclass(obj):
        return _call(obj, _changed_fields(obj), path)
    if is_a(obj, Mapping):
        return _entries(obj, path)
    if is_a(obj, (list, tuple, set, frozenset)):
        return kind_of(obj)(_export(item, (*path, index)) for index, item in enumerate(obj))
    if callable(obj) and importable_name(obj):
        return {CONST: _name(obj, path)}
    raise ConfigError(
        f"{paths.join('obj', *path)}: an object of type {kind_of(obj).__qualname__} cannot be exported; "
        "give its class a method __konfig_export__ that returns the dict of the call that makes it"
    )


def _entries(obj: Mapping[Any, Any], path: tuple[Any, ...]) -> dict[Any, Any]:
    return {key: _export(value, (*path, key)) for key, value in obj.items()}


def _name(obj: Any, path: tuple[Any, ...]) -> str:
    name = importable_name(obj)
    if name is None:
        raise ConfigError(f"{paths.join('obj', *path)}: {obj!r} has no name under which it can be imported")
    return name


def _call(obj: Any, arguments: Mapping[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    return {QUALNAME: _name(kind_of(obj), path), **_entries(arguments, path)}


def _partial(obj: functools.partial[Any], path: tuple[Any, ...]) -> dict[str, Any]:
    positional = {str(index): arg for index, arg in enumerate((obj.func, *obj.args))}
    return {QUALNAME: PARTIAL, **_entries({**positional, **obj.keywords}, path)}


def _array(obj: Any, path: tuple[Any, ...]) -> dict[str, Any]:
    module = "jax.numpy" if kind_of(obj).__module__.startswith("jax") else "numpy"
    if obj.dtype.kind in "OMmSU":
        raise ConfigError(f"{paths.join('obj', *path)}: an array of dtype {obj.dtype} cannot be exported")
    import numpy as np  # An array is at hand, so NumPy is imported already.

    values = np.asarray(obj)
    values = values if values.dtype.kind in "biufc" else values.astype(np.float64)  # bfloat16 and its kind.
    return {QUALNAME: f"{module}:array", "0": values.tolist(), "dtype": np.dtype(obj.dtype)}


def _changed_fields(obj: Any) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(obj):
        if field.init:
            value = getattr(obj, field.name)
            default = field.default_factory() if callable(field.default_factory) else field.default
            if not _is_default(value, default):
                changed[field.name] = value
    return changed


def _is_default(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if type(value) is not type(default):
        return False
    try:
        return bool(value == default)
    except (TypeError, ValueError):  # Arrays have no single truth value.
        return False
