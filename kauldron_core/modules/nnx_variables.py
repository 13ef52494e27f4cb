"""The variables of an NNX module, kept as the variables of a Linen scope."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import numpy as np
from flax import nnx
from flax.nnx import variablelib

from kauldron_core import paths
from kauldron_core.modules.nnx_streams import Placeholders, Streams

_PARAMS = "params"


def build(factory: Callable[..., nnx.Module], streams: nnx.Rngs) -> nnx.Module:
    """Module made by `factory`, which is given the streams if it takes `rngs`."""
    return factory(rngs=streams) if _takes_rngs(factory) else factory()


def write(module: nnx.Module, scope: nn.Module) -> None:
    """Writes the variables of `module` into the collections of `scope` that may change in this call."""
    trees: dict[str, dict[Any, Any]] = {}
    for path, leaf in _leaves(module):
        if isinstance(leaf, nnx.Variable) and not isinstance(leaf, nnx.RngState | nnx.Intermediate):
            tree = trees.setdefault(collection_of(leaf), {})
            for part in path[:-1]:
                tree = tree.setdefault(part, {})
            tree[path[-1]] = leaf.get_value()
    for collection, tree in trees.items():
        if scope.is_mutable_collection(collection):
            for name, value in tree.items():
                scope.put_variable(collection, name, value)


def read(factory: Callable[..., nnx.Module], scope: nn.Module) -> nnx.Module:
    """Returns the module of `factory` with the variables of `scope`. Its random streams have no real keys yet.

    Raises:
      ValueError: If `scope` lacks a variable, or holds one of another shape.
    """
    # Built in earnest and not by `eval_shape`, which loses arrays that a constructor computes. Under jit the initial
    # values are dead code, as all of them are replaced.
    module = build(factory, Streams(Placeholders()))
    for path, leaf in _leaves(module):
        if isinstance(leaf, nnx.Variable) and not isinstance(leaf, nnx.RngState):
            leaf.set_value(_value_at(path, leaf, scope))
    return module


def collection_of(variable: nnx.Variable[Any]) -> str:
    """Returns the name of the Linen collection for a variable: `params` for all that is trained."""
    if isinstance(variable, nnx.Param):
        return _PARAMS
    try:
        return variablelib.variable_name_from_type(type(variable))
    except ValueError:
        return type(variable).__name__


def _value_at(path: tuple[Any, ...], variable: nnx.Variable[Any], scope: nn.Module) -> Any:
    """Value that `scope` holds for a variable."""
    collection, shape = collection_of(variable), np.shape(variable.get_value())
    value: Any = scope.variables.get(collection, {})
    try:
        for part in path:
            value = value[part]
    except KeyError:
        raise ValueError(_misfit(collection, path, "is not in the state")) from None
    if np.shape(value) != shape:
        raise ValueError(_misfit(collection, path, f"has shape {np.shape(value)}, and in the module {shape}"))
    return value


def _takes_rngs(factory: Callable[..., Any]) -> bool:
    while isinstance(factory, functools.partial):
        factory = factory.func
    # The signature of an NNX class is that of its metaclass, which takes anything.
    parameters = inspect.signature(factory.__init__ if isinstance(factory, type) else factory).parameters
    return "rngs" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _leaves(module: nnx.Module) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield from nnx.to_flat_state(nnx.state(module))


def _misfit(collection: str, path: tuple[Any, ...], what: str) -> str:
    return f"{collection}.{paths.format(path)} {what}: was the state made by another module?"
