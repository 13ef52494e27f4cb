"""`State`: what a metric knows after some batches. States merge; only the merged one is computed."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import flax.struct
import jax
import numpy as np

from kauldron_core.metrics.host import fetch, has_tracer, in_64_bits, is_narrow, is_on_host, is_wide, widen

MetricT = TypeVar("MetricT")
_T = TypeVar("_T")


def _checked_merge(merge: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a `merge` with the check that both states belong together, and with 64 bits on the host."""

    @functools.wraps(merge)
    def checked(self: State[Any], other: State[Any]) -> State[Any]:
        if type(other) is not type(self):
            raise TypeError(f"cannot merge a {type(self).__qualname__} with a {type(other).__qualname__}")
        parent = _common_parent(self, other)
        on_host = (is_on_host(self) or is_on_host(other)) and not has_tracer((self, other))
        self, other = (to_host(self), to_host(other)) if on_host else (wide(self), wide(other))
        with in_64_bits(on_host):
            merged = merge(self, other)
        return (to_host(merged) if on_host else merged).replace(parent=parent)

    return checked


def _wide_compute(compute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compute)
    def computed(self: State[Any]) -> Any:
        with in_64_bits(is_on_host(self)):
            return compute(self)

    return computed


def _common_parent(left: State[Any], right: State[Any]) -> Any:
    if left.parent is None or right.parent is None:
        return right.parent if left.parent is None else left.parent
    if left.parent != right.parent:
        raise ValueError(f"cannot merge states of different metrics: {left.parent} and {right.parent}")
    return left.parent


@flax.struct.dataclass
class State(abc.ABC, Generic[MetricT]):
    """Base class of metric states: a frozen dataclass and pytree of sums, counts, extremes or samples.

    `merge` is associative and `empty()` its identity, so that batches, hosts and evaluators can be merged in any
    grouping. On the host (`to_host`) states merge and compute in 64 bits, whatever the dtype of their fields.

    Attributes:
      parent: The metric that made the state; it may be needed to compute it. States of different metrics refuse to
        merge, a state without parent merges with any.
    """

    parent: MetricT | None = flax.struct.field(pytree_node=False, default=None, kw_only=True)

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self:
            """Returns a copy with some fields changed."""
            ...

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if "merge" in cls.__dict__:
            cls.merge = _checked_merge(cls.merge)
        if "compute" in cls.__dict__:
            cls.compute = _wide_compute(cls.compute)

    @classmethod
    @abc.abstractmethod
    def empty(cls) -> Self:
        """Returns the state of no data: the identity of `merge`."""

    @abc.abstractmethod
    def merge(self, other: Any) -> Self:
        """Returns the state of the data of both."""
        # `functools.reduce(State.merge, states)` means the merge of their class.
        return type(self).merge(self, other)

    @abc.abstractmethod
    def compute(self) -> Any:
        """Returns the value (a scalar, or a dict of them) of the data merged so far. Runs outside of jit."""

    def is_empty(self) -> bool:
        """Returns whether no example counted, so that there is nothing to compute. Outside of jit.

        Told by a field `count` or `counts`, or else by the states in the fields; a state with neither is never empty.
        """
        fields = [getattr(self, field.name) for field in dataclasses.fields(self) if field.name in ("count", "counts")]
        inner = [value for value in vars(self).values() if is_state(value)]
        if fields:
            return not np.any(fetch(fields[0]))
        return bool(inner) and all(state.is_empty() for state in inner)

    def compute_or_nan(self) -> Any:
        """`compute`, or NaN where no example counted: nothing is neither perfect nor bad."""
        return _all_nan(self) if self.is_empty() else self.compute()

    def finalize(self) -> Self:
        """Returns the state on the host."""
        return to_host(self)

    def widened(self) -> Self:
        """Returns this state with the fields that grow as data is merged in 64 bits; on a device in 32 at least."""
        return jax.tree.map(
            lambda value: value.widened() if isinstance(value, State) else widen(value),
            self,
            is_leaf=lambda value: isinstance(value, State) and value is not self,
        )


@flax.struct.dataclass
class EmptyState(State[MetricT]):
    """The state of a metric that has nothing to say."""

    @classmethod
    def empty(cls) -> Self:
        return cls()

    def merge(self, other: Any) -> Self:
        return self

    def compute(self) -> dict[str, Any]:
        return {}


def _all_nan(state: State[Any]) -> Any:
    """Returns NaN in the place of each number that the state computes to."""
    try:
        value = state.compute()
    except ValueError:  # It refuses to compute without data.
        return np.float64("nan")
    return jax.tree.map(lambda leaf: np.full(np.shape(leaf), np.nan), value)


def is_state(value: Any) -> bool:
    return isinstance(value, State)


def wide(state: Any) -> Any:
    """Returns a state on a device with the fields that grow by merging in 32 bits at least, and anything else as it is.

    So a count is exact wherever states merge: in a batch worked off in parts, in a scan, in a pack.
    """
    return state.widened() if is_state(state) and is_narrow(state) else state


def to_host(tree: _T) -> _T:
    """Returns a state, or a tree of states, with NumPy fields; those that grow by merging are in float64 and int64."""
    if is_wide(tree):
        return tree
    fetched = fetch(tree)
    return jax.tree.map(lambda state: state.widened() if is_state(state) else state, fetched, is_leaf=is_state)


def reduce_states(states: Iterable[State[Any]]) -> State[Any]:
    """Returns the merge of `states`, computed on the host.

    Raises:
      ValueError: When there are none.
    """
    merged = None
    for state in states:
        host = to_host(state)
        merged = host if merged is None else merged.merge(host)
    if merged is None:
        raise ValueError("reduce_states needs at least one state")
    return merged
