"""Metrics around a metric: with more weights, or only where there is something to measure."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import flax.struct

from kauldron_core import kontext
from kauldron_core.metrics.mask import combine_masks
from kauldron_core.metrics.metric import Metric, link
from kauldron_core.metrics.state import MetricT, State


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightedAverage(Metric):
    """Weighs the examples of a metric: sum of weight times value over the sum of weights, over all batches.

        WeightedAverage(metric=Accuracy(...), weights='batch.weight')

    Attributes:
      metric: A metric that takes a mask. One it has already is multiplied with the weights.
      weights: Numbers for the leading dimensions of the metric's values.
    """

    metric: Metric
    weights: kontext.Key = kontext.REQUIRED

    def __post_init__(self):
        if not self.metric.takes_mask:
            raise ValueError(f"WeightedAverage: {type(self.metric).__name__} takes no mask, so it can't be weighted")

    @property
    def better(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the metric."""
        return getattr(self.metric, "better", None)

    def __kontext_keys__(self) -> dict[str, Any]:
        return {**kontext.get_keypaths(self.metric), "weights": self.weights}

    def empty(self) -> Any:
        return self.metric.empty()

    def get_state(self, *, weights: Any, mask: Any = None, **kwargs: Any) -> Any:
        return self.metric.get_state(**kwargs, mask=combine_masks(mask, weights))


@flax.struct.dataclass
class OptionalState(State[MetricT]):
    """A state that may be missing. Without it there is no value: it computes to an empty dict.

    Attributes:
      state: The state of the metric, or None.
    """

    state: Any = None

    @classmethod
    def empty(cls) -> Self:
        return cls()

    def merge(self, other: Any) -> Self:
        if self.state is None or other.state is None:
            return other if self.state is None else self
        return self.replace(state=self.state.merge(other.state))

    def finalize(self) -> Self:
        return self if self.state is None else self.replace(state=self.state.finalize())

    def compute(self) -> Any:
        return {} if self.state is None else self.state.compute()

    def is_empty(self) -> bool:
        return self.state is None or self.state.is_empty()

    def compute_or_nan(self) -> Any:
        return {} if self.state is None else self.state.compute_or_nan()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SkipIfMissing(Metric):
    """Gives the value of a metric where its keys lead to something, and nothing elsewhere.

    Attributes:
      metric: What is measured. Required keys still have to be set.
    """

    metric: Metric

    State = OptionalState

    @property
    def better(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the metric."""
        return getattr(self.metric, "better", None)

    @property
    def takes_mask(self) -> bool:
        return self.metric.takes_mask

    def __kontext_keys__(self) -> dict[str, Any]:
        return kontext.get_keypaths(self.metric)

    def get_state(self, **kwargs: Any) -> Any:
        return self.State(state=self.metric.get_state(**kwargs))

    def get_state_from_context(self, context: Any, *, padding_mask: Any = None) -> Any:
        try:
            # Reading is all that may fail: a KeyError inside the metric is a fault of the metric.
            self.metric._resolve_kwargs(context)
        except kontext.PathLookupError:
            return self.empty()
        return link(self.State(state=self.metric.get_state_from_context(context, padding_mask=padding_mask)), self)
