"""`AutoState`: a state whose fields say how they merge."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, ClassVar, Self

import flax.struct
import numpy as np

from kauldron_core.metrics.host import has_tracer
from kauldron_core.metrics.rules import EMPTY, RULE, MergeRule, NestedRule
from kauldron_core.metrics.state import MetricT, State, to_host


class Values(types.SimpleNamespace):
    """The fields of a state after merging, as plain attributes."""


def _mark_static(cls: type) -> None:
    """Makes the fields that a class declares without a merge rule part of the pytree's structure."""
    for name, annotation in inspect.get_annotations(cls).items():
        if _is_class_variable(annotation):
            continue
        default = cls.__dict__.get(name, dataclasses.MISSING)
        if not isinstance(default, dataclasses.Field):
            setattr(cls, name, flax.struct.field(pytree_node=False, default=default))
        elif "pytree_node" not in default.metadata:
            default.metadata = types.MappingProxyType({**default.metadata, "pytree_node": False})


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.split("[")[0].split(".")[-1] == "ClassVar"
    return annotation is ClassVar or typing.get_origin(annotation) is ClassVar


def _on_values(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a `compute` so that it sees whole arrays on the host."""

    @functools.wraps(compute)
    def wrapped(self: AutoState[Any]) -> Any:
        if any(value is EMPTY for _, _, value in self._ruled()):
            raise ValueError(f"{type(self).__qualname__}: no data was merged into this state, so it has no value")
        return compute(self.finalize())

    return wrapped


@flax.struct.dataclass
class AutoState(State[MetricT]):
    """A state of which only the fields and `compute` have to be written.

        @flax.struct.dataclass
        class State(AutoState):
            hits: jax.Array = sum_field()
            worst: jax.Array = max_field()

            def compute(self):
                return {'hits': self.hits, 'worst': self.worst}

    Fields merge as `sum_field`, `min_field`, `max_field`, `concat_field`, `truncate_field` or `state_field` say; those
    without a rule are static and must be equal. In `compute` the fields are NumPy arrays in 64 bits, concatenated and
    truncated; without a `compute` the state computes to its fields.
    """

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        _mark_static(cls)
        if "compute" in cls.__dict__:
            cls.compute = _on_values(cls.compute)

    @classmethod
    def empty(cls) -> Self:
        values: dict[str, Any] = {field.name: EMPTY for field in dataclasses.fields(cls) if field.name != "parent"}
        return cls(**values)

    def is_empty(self) -> bool:
        """Returns whether no example counted: nothing was merged, or a field `count` or `counts` is 0."""
        return any(value is EMPTY for _, _, value in self._ruled()) or super().is_empty()

    def merge(self, other: Any) -> Self:
        # The parent, which rules may refer to, may be known to one of the two only.
        state = self if self.parent is not None else self.replace(parent=other.parent)
        fields = [field for field in dataclasses.fields(self) if field.name != "parent"]
        return self.replace(**{field.name: _merge_field(field, self, other, state) for field in fields})

    def finalize(self) -> Self:
        """Returns the state on the host, with what was collected in one array each."""
        state = self if has_tracer(self) else to_host(self)
        return state.replace(
            **{name: rule.finalize(value, state) for name, rule, value in state._ruled() if value is not EMPTY}
        )

    def compute(self) -> Any:
        """Returns the fields of the merged state as attributes; those that are states are computed."""
        state = self.finalize()
        values = {
            field.name: getattr(state, field.name) for field in dataclasses.fields(state) if field.name != "parent"
        }
        for name, rule, value in state._ruled():
            if isinstance(rule, NestedRule) and isinstance(value, State):
                values[name] = value.compute()
        return Values(**values)

    def widened(self) -> Self:
        return self.replace(**{name: rule.widened(value) for name, rule, value in self._ruled() if value is not EMPTY})

    def _ruled(self) -> list[tuple[str, MergeRule, Any]]:
        """Returns (name, rule, value) of the fields that have a rule."""
        fields = [field for field in dataclasses.fields(self) if RULE in field.metadata]
        return [(field.name, field.metadata[RULE], getattr(self, field.name)) for field in fields]


def _merge_field(field: dataclasses.Field[Any], left_state: Any, right_state: Any, state: Any) -> Any:
    left, right = getattr(left_state, field.name), getattr(right_state, field.name)
    if left is EMPTY or right is EMPTY:
        return right if left is EMPTY else left
    if RULE in field.metadata:
        return field.metadata[RULE].merge(left, right, state)
    if not _is_same(left, right):
        name = f"{type(state).__qualname__}.{field.name}"
        raise ValueError(f"{name}: static fields have to be equal to merge, and {left!r} is not {right!r}")
    return left


def _is_same(left: Any, right: Any) -> bool:
    return left is right or bool(np.all(left == right))
