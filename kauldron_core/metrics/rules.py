"""The merge rules that the fields of an `AutoState` can have: how two values become one."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core import kontext
from kauldron_core.metrics.host import fetch, has_tracer, is_on_host, widen

RULE = "kauldron_merge_rule"
"""Where a dataclass field keeps its rule, in its metadata."""


@jax.tree_util.register_static
class Empty:
    """The value of every field of an empty state: merging anything with it gives that thing. There is one, EMPTY."""

    def __repr__(self) -> str:
        return "EMPTY"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Empty)

    def __hash__(self) -> int:
        return hash(Empty)

    def __reduce__(self) -> str:
        return "EMPTY"


EMPTY = Empty()


@jax.tree_util.register_pytree_node_class
class Chunks:
    """Arrays that will be concatenated once, when the state is computed, and not at every merge."""

    def __init__(self, *arrays: Any):
        self.arrays = arrays

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return self.arrays, None

    @classmethod
    def tree_unflatten(cls, _aux: None, arrays: tuple[Any, ...]) -> Self:
        return cls(*arrays)

    def __repr__(self) -> str:
        return f"Chunks({', '.join(str(np.shape(array)) for array in self.arrays)})"


class MergeRule(abc.ABC):
    """How two values of a field become one. Values are trees; neither is EMPTY here."""

    verb: str

    def merge(self, left: Any, right: Any, state: Any) -> Any:
        """Returns the merge of two trees of values."""
        if left is None or right is None:
            return self._merge(left, right, state)
        return jax.tree.map(lambda a, b: self._merge(a, b, state), left, right, is_leaf=_is_leaf)

    def finalize(self, value: Any, state: Any) -> Any:
        """Returns the value that `compute` sees."""
        return jax.tree.map(lambda leaf: self._finalize(leaf, state), value, is_leaf=_is_leaf)

    def widened(self, value: Any) -> Any:
        """Returns the value in 64 bits (in 32 at least, on a device) if merging makes it grow."""
        return value

    def _merge(self, left: Any, right: Any, state: Any) -> Any:
        if left is None and right is None:
            return None
        if left is None or right is None:
            raise ValueError(f"Cannot {self.verb} None and an array in {type(state).__qualname__}")
        return self._merge_arrays(left, right, state)

    @abc.abstractmethod
    def _merge_arrays(self, left: Any, right: Any, state: Any) -> Any: ...

    def _finalize(self, value: Any, state: Any) -> Any:
        return value


@dataclasses.dataclass(frozen=True)
class ReduceRule(MergeRule):
    """Sum, minimum or maximum, element by element."""

    verb: str
    on_host: Callable[[Any, Any], Any]
    on_device: Callable[[Any, Any], Any]

    def widened(self, value: Any) -> Any:
        if self.verb != "sum":
            return value
        return jax.tree.map(lambda leaf: widen(_counted(leaf)), value)

    def _merge_arrays(self, left: Any, right: Any, state: Any) -> Any:
        if np.shape(left) != np.shape(right):
            shapes = f"shapes {np.shape(left)} and {np.shape(right)}"
            raise ValueError(f"Cannot {self.verb} {shapes} in {type(state).__qualname__}: they have to be equal")
        if is_on_host((left, right)):
            return self.on_host(left, right)
        return self.on_device(left, right)


def _counted(leaf: Any) -> Any:
    """Returns booleans as integers: their sum is a count to us and an OR to JAX."""
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    return array + 0 if array.dtype == bool else leaf


def _add(left: Any, right: Any) -> Any:
    return jnp.add(_counted(left), _counted(right))


SUM = ReduceRule("sum", np.add, _add)
MIN = ReduceRule("minimize", np.minimum, jnp.minimum)
MAX = ReduceRule("maximize", np.maximum, jnp.maximum)


@dataclasses.dataclass(frozen=True)
class ConcatRule(MergeRule):
    """One after the other along an axis; kept on the host."""

    axis: int = 0
    verb: str = "concatenate"

    def _merge_arrays(self, left: Any, right: Any, state: Any) -> Any:
        if has_tracer((left, right)):
            name = type(state).__qualname__
            raise TypeError(f"{name}: states that collect arrays cannot merge inside jit; return them, merge outside")
        return Chunks(*_chunks(left), *_chunks(right))

    def _finalize(self, value: Any, state: Any) -> Any:
        return _concatenate(value, self.axis)


@dataclasses.dataclass(frozen=True)
class TruncateRule(ConcatRule):
    """The first `num_field` elements along an axis."""

    num_field: str = ""
    verb: str = "truncate"

    def _merge_arrays(self, left: Any, right: Any, state: Any) -> Any:
        have = sum(np.shape(array)[self.axis] for array in _chunks(left))
        if have >= self._num(state):
            return left
        return super()._merge_arrays(left, right, state)

    def _finalize(self, value: Any, state: Any) -> Any:
        if value is None:
            return None
        array = _concatenate(value, self.axis)
        index = [slice(None)] * array.ndim
        index[self.axis] = slice(self._num(state))
        return array[tuple(index)]

    def _num(self, state: Any) -> int:
        return int(kontext.get_by_path(state, self.num_field))


@dataclasses.dataclass(frozen=True)
class NestedRule(MergeRule):
    """A state within the state."""

    verb: str = "merge"

    def merge(self, left: Any, right: Any, state: Any) -> Any:
        return self._merge(left, right, state)

    def finalize(self, value: Any, state: Any) -> Any:
        return None if value is None else value.finalize()

    def widened(self, value: Any) -> Any:
        return None if value is None else value.widened()

    def _merge_arrays(self, left: Any, right: Any, state: Any) -> Any:
        return left.merge(right)


def _is_leaf(value: Any) -> bool:
    return value is None or isinstance(value, Chunks)


def _chunks(value: Any) -> tuple[Any, ...]:
    return value.arrays if isinstance(value, Chunks) else (fetch(value),)


def _concatenate(value: Any, axis: int) -> Any:
    return np.concatenate(value.arrays, axis=axis) if isinstance(value, Chunks) else value
