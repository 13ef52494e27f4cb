"""The fields that an `AutoState` can have."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct

from kauldron_core.metrics.rules import MAX, MIN, RULE, SUM, ConcatRule, MergeRule, NestedRule, TruncateRule


def sum_field(**kwargs: Any) -> Any:
    """A field that adds up. Takes trees too. On the host it is kept in int64 or float64."""
    return _field(SUM, **kwargs)


def min_field(**kwargs: Any) -> Any:
    """A field that keeps the smaller, element by element."""
    return _field(MIN, **kwargs)


def max_field(**kwargs: Any) -> Any:
    """A field that keeps the larger, element by element."""
    return _field(MAX, **kwargs)


def concat_field(*, axis: int = 0, **kwargs: Any) -> Any:
    """A field that keeps everything, one batch after the other along `axis`, on the host."""
    return _field(ConcatRule(axis), **kwargs)


def truncate_field(*, num_field: str, axis: int = 0, **kwargs: Any) -> Any:
    """A field that keeps the first so many along `axis`.

    Args:
      num_field: Path, from the state, to how many: another field, or `parent.num` for one of the metric.
      axis: Along which to count.
      **kwargs: Arguments of `dataclasses.field`.
    """
    return _field(TruncateRule(axis, num_field=num_field), **kwargs)


def state_field(**kwargs: Any) -> Any:
    """A field that holds another state, which merges and computes in its own way."""
    return _field(NestedRule(), **kwargs)


def static_field(default: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """A field that is part of the structure: hashable, and equal in all states that merge."""
    return flax.struct.field(pytree_node=False, default=default, **kwargs)


def _field(rule: MergeRule, **kwargs: Any) -> Any:
    metadata = {**kwargs.pop("metadata", {}), RULE: rule}
    return flax.struct.field(pytree_node=True, metadata=metadata, **kwargs)
