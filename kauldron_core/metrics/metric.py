"""`Metric`: what to measure, as a frozen description wired by keys; the numbers live in its states."""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import numpy as np
from jax import core

from kauldron_core import kontext
from kauldron_core.metrics.directions import Better, check_better
from kauldron_core.metrics.mask import MaskError, combine_masks
from kauldron_core.metrics.state import EmptyState, State, wide

# What lies below these is the same for every example: it has no rows for a padding mask to leave out.
_WITHOUT_EXAMPLES = frozenset({"params", "collections", "opt_state", "grads", "updates", "step"})


def link(state: Any, metric: Metric) -> Any:
    """Returns `state` with `metric` as its parent, unless it has one."""
    if isinstance(state, State) and state.parent is None:
        return state.replace(parent=static_view(metric))
    return state


@dataclasses.dataclass(frozen=True)
class Traced:
    """Stands in a state's parent for a number that is an argument of the compiled program (a traced loss weight)."""


def static_view(metric: Metric) -> Metric:
    """Returns `metric` without arrays: what can be part of the static structure of a state, compared and hashed."""
    changed = {}
    for field in dataclasses.fields(metric):
        value = getattr(metric, field.name)
        if isinstance(value, jax.Array | np.ndarray) or _holds_tracer(value):
            changed[field.name] = Traced()
        elif isinstance(value, Metric) and (view := static_view(value)) is not value:
            changed[field.name] = view
    if not changed:
        return metric
    # Not `replace`: the checks of `__post_init__` are about numbers that are not here.
    view = object.__new__(type(metric))
    for field in dataclasses.fields(metric):
        object.__setattr__(view, field.name, changed.get(field.name, getattr(metric, field.name)))
    return view


def _holds_tracer(value: Any) -> bool:
    """Returns whether a schedule, or what else a field holds, was made of numbers that are being traced."""
    if dataclasses.is_dataclass(value) and not isinstance(value, Metric | type):
        return any(_holds_tracer(getattr(value, field.name)) for field in dataclasses.fields(value))
    cells = getattr(value, "__closure__", None) or ()
    return isinstance(value, core.Tracer) or any(_holds_tracer(cell.cell_contents) for cell in cells)


def _linked(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def linked(self: Metric, *args: Any, **kwargs: Any) -> Any:
        return link(wide(method(self, *args, **kwargs)), self)

    return linked


def _check_definition(cls: type) -> None:
    if "compute" in cls.__dict__:
        raise TypeError(f"{cls.__qualname__}: a metric defines get_state; compute belongs to its State")
    if "better" in cls.__dict__ and not hasattr(cls.__dict__["better"], "__get__"):
        check_better(cls.__dict__["better"], at=f"{cls.__qualname__}.better")
    state = cls.__dict__.get("State")
    if isinstance(state, type) and issubclass(state, State) and "_flax_dataclass" not in state.__dict__:
        raise TypeError(f"{state.__qualname__}: decorate the state with @flax.struct.dataclass")


def _root(path: Any) -> Any:
    """Returns the first part of a path, None for the root itself."""
    parts = kontext.GlobPath.from_str(str(path))
    return parts[0] if len(parts) else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric(abc.ABC):
    """Base class of metrics: frozen dataclasses whose `Key` fields name the arguments of `get_state`.

        @dataclasses.dataclass(frozen=True, kw_only=True)
        class MeanLength(Metric):
            lengths: kontext.Key = kontext.REQUIRED
            mask: kontext.Key | None = None

            @flax.struct.dataclass
            class State(AverageState): ...

            def get_state(self, lengths, mask=None):
                return self.State.from_values(lengths, mask)

    A metric whose `get_state` has a `mask` can be evaluated on padded batches: it is given the padding mask, combined
    with the mask that the user wired.

    What ranks trials and keeps checkpoints asks the metric which end of it is the good one: `better`.

    Attributes:
      better: `"higher"` or `"lower"`, None where neither is. A metric of several numbers may say it for each:
        `{"recall": "higher", "misses": "lower"}`.
    """

    better: ClassVar[Better | Mapping[str, Better] | None] = None

    # The class of its states; each metric has its own, with its own fields.
    State: ClassVar[Any] = EmptyState

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        _check_definition(cls)
        for name in ("get_state", "empty"):
            if name in cls.__dict__:
                setattr(cls, name, _linked(cls.__dict__[name]))

    @abc.abstractmethod
    def get_state(self, *args: Any, **kwargs: Any) -> State[Any]:
        """Returns the state of one batch. Runs inside jit."""

    def empty(self) -> State[Any]:
        """Returns the state of no data."""
        return link(self.State.empty(), self)

    @property
    def takes_mask(self) -> bool:
        """Whether `get_state` has a `mask`, so that padded examples can be left out."""
        return "mask" in inspect.signature(self.get_state).parameters

    def get_state_from_context(self, context: Any, *, padding_mask: Any = None) -> State[Any]:
        """Returns the state of one batch, with the arguments that the keys lead to in `context`.

        Args:
          context: Holds the batch, the predictions and so on.
          padding_mask: Booleans of shape (batch,): which examples count. Combined with the mask wired by key.

        Raises:
          TypeError: When there is a padding mask and the metric takes none.
        """
        kwargs = self._resolve_kwargs(context)
        if padding_mask is not None and self._has_examples():
            self._add_padding(kwargs, padding_mask)
        return self.get_state(**kwargs)

    def __call__(self, *, context: Any = None, **kwargs: Any) -> Any:
        """Returns the value for one batch, from a context or from the arguments of `get_state`."""
        if context is None:
            return self.get_state(**kwargs).compute()
        if kwargs:
            raise TypeError(f"give either a context or arguments, not both: context and {', '.join(kwargs)}")
        return self.get_state_from_context(context).compute()

    def _resolve_kwargs(self, context: Any) -> dict[str, Any]:
        return kontext.resolve_from_keyed_obj(context, self, func=self.get_state)

    def _add_padding(self, kwargs: dict[str, Any], padding_mask: Any) -> None:
        if not self.takes_mask:
            raise TypeError(f"{type(self).__name__} takes no mask, so it cannot leave out padded examples")
        kwargs["mask"] = combine_masks(kwargs.get("mask"), padding_mask)

    def _has_examples(self) -> bool:
        """Returns whether some key leads to values of the batch."""
        keypaths = {name: tree for name, tree in kontext.get_keypaths(self).items() if name not in ("mask", "step")}
        roots = [_root(path) for path in jax.tree.leaves(keypaths)]
        return not roots or any(root not in _WITHOUT_EXAMPLES for root in roots)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoopMetric(Metric):
    """Measures nothing: a place holder where a metric is expected."""

    State = EmptyState

    def get_state(self, *args: Any, mask: Any = None, **kwargs: Any) -> State[Any]:
        return self.State.empty()


def accepts_padding(metric: Metric, context: Any, padding_mask: Any) -> bool:
    """Returns whether `metric` can leave out the padded examples of such a batch; computes nothing.

    False when it takes no mask, or when its values have no dimension of examples (an auxiliary loss that the model
    returns as a scalar): it must then see the batch without padding.
    """
    if not metric.takes_mask:
        return False
    try:
        jax.eval_shape(
            lambda *args: metric.get_state_from_context(args[0], padding_mask=args[1]), context, padding_mask
        )
    except MaskError:
        return False
    return True
