"""Metrics over the leaves of a tree: one value for each, or one for all."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Self

import flax.struct
import jax

from kauldron_core import kontext
from kauldron_core.metrics.metric import Metric
from kauldron_core.metrics.state import MetricT, State, is_state


@flax.struct.dataclass
class TreeState(State[MetricT]):
    """A tree of states, which merge and compute one by one."""

    tree: Any = flax.struct.field(default_factory=dict)

    @classmethod
    def empty(cls) -> Self:
        return cls()

    def merge(self, other: Any) -> Self:
        if not jax.tree.leaves(self.tree, is_leaf=is_state) or not jax.tree.leaves(other.tree, is_leaf=is_state):
            return other if not jax.tree.leaves(self.tree, is_leaf=is_state) else self
        merged = jax.tree.map(lambda left, right: left.merge(right), self.tree, other.tree, is_leaf=is_state)
        return self.replace(tree=merged)

    def finalize(self) -> Self:
        return self.replace(tree=jax.tree.map(lambda state: state.finalize(), self.tree, is_leaf=is_state))

    def compute(self) -> Any:
        """Returns the tree of values."""
        return jax.tree.map(lambda state: state.compute(), self.tree, is_leaf=is_state)

    def is_empty(self) -> bool:
        """Returns whether no example counted in any of them."""
        return all(state.is_empty() for state in jax.tree.leaves(self.tree, is_leaf=is_state))

    def compute_or_nan(self) -> Any:
        return jax.tree.map(lambda state: state.compute_or_nan(), self.tree, is_leaf=is_state)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeMetric(Metric):
    """Base class of metrics that apply another one to each leaf of a tree.

    Attributes:
      metric: What is applied. Its keys lead to trees, and may be globs: `params.**.kernel`. A key that leads to a
        single array (a mask) is used for every leaf.
    """

    metric: Metric

    @property
    def better(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the metric."""
        return getattr(self.metric, "better", None)

    @property
    def takes_mask(self) -> bool:
        return self.metric.takes_mask

    def empty(self) -> State[Any]:
        return self.State.empty()

    def __kontext_keys__(self) -> dict[str, Any]:
        return {name: path and glob.first_non_glob_parent for name, (path, glob) in self._globs().items()}

    def __kontext_func__(self) -> Any:
        return self.metric.get_state

    def _resolve_kwargs(self, context: Any) -> dict[str, Any]:
        return kontext.resolve_from_keyed_obj(context, self)

    def _globs(self) -> dict[str, tuple[Any, kontext.GlobPath]]:
        """Returns the keys of the metric, each with its path as a glob."""
        keypaths = kontext.get_keypaths(self.metric)
        return {name: (path, kontext.GlobPath.from_str(str(path or ""))) for name, path in keypaths.items()}

    def _states(self, kwargs: Mapping[str, Any]) -> Any:
        """Returns the tree of the states of the leaves."""
        globs = self._globs()
        trees = {name: _select(tree, globs[name][1] if name in globs else None) for name, tree in kwargs.items()}
        shared = {name: tree for name, tree in trees.items() if jax.tree.structure(tree) == _LEAF}
        mapped = {name: tree for name, tree in trees.items() if name not in shared}
        if not mapped:
            return self.metric.get_state(**shared)

        def state_of(*leaves: Any) -> State[Any]:
            return self.metric.get_state(**dict(zip(mapped, leaves, strict=True)), **shared)

        return jax.tree.map(state_of, *mapped.values())


_LEAF = jax.tree.structure(0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeMap(TreeMetric):
    """Applies a metric to each leaf of a tree and gives the tree of values.

    TreeMap(metric=Norm(tensor='params.**.kernel', axis=None))
    """

    State = TreeState

    @property
    def better(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the metric; of one with several numbers by name, below whichever leaf."""
        better = super().better
        return {f"*/{name}": one for name, one in better.items()} if isinstance(better, Mapping) else better

    def get_state(self, **kwargs: Any) -> Any:
        return self.State(tree=self._states(kwargs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeReduce(TreeMetric):
    """Applies a metric to each leaf of a tree and merges the states: one value over all leaves."""

    def empty(self) -> Any:
        return self.metric.empty()

    def get_state(self, **kwargs: Any) -> Any:
        states = jax.tree.leaves(self._states(kwargs), is_leaf=is_state)
        return functools.reduce(lambda left, right: left.merge(right), states) if states else self.metric.empty()


def _select(tree: Any, glob: kontext.GlobPath | None) -> Any:
    """Returns the part of `tree`, which lies at the first wildcard of `glob`, that the rest of it leads to."""
    if glob is None:
        return tree
    return kontext.filter_by_path(tree, glob[len(glob.first_non_glob_parent) :])
