"""Metrics as states that merge exactly."""

from kauldron_core.metrics.accuracy import Accuracy
from kauldron_core.metrics.auto_state import AutoState
from kauldron_core.metrics.average import AverageState
from kauldron_core.metrics.fields import (
    EMPTY,
    concat_field,
    max_field,
    min_field,
    state_field,
    static_field,
    sum_field,
    truncate_field,
)
from kauldron_core.metrics.mask import MaskError, align_mask, combine_masks
from kauldron_core.metrics.metric import Metric, NoopMetric, accepts_padding
from kauldron_core.metrics.state import EmptyState, State, reduce_states, to_host

__all__ = [
    "Accuracy",
    "AutoState",
    "AverageState",
    "EMPTY",
    "EmptyState",
    "MaskError",
    "Metric",
    "NoopMetric",
    "State",
    "accepts_padding",
    "align_mask",
    "combine_masks",
    "concat_field",
    "max_field",
    "min_field",
    "reduce_states",
    "state_field",
    "static_field",
    "sum_field",
    "to_host",
    "truncate_field",
]
