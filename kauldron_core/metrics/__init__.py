"""Metrics as states that merge exactly, whatever the batches, devices and hosts."""

from kauldron_core.metrics.accuracy import Accuracy, BinaryAccuracy, Precision1, TokenAccuracy
from kauldron_core.metrics.auto_state import AutoState
from kauldron_core.metrics.average import AverageState
from kauldron_core.metrics.calibration import ECE
from kauldron_core.metrics.class_counts import F1, Precision, Recall
from kauldron_core.metrics.confusion import ConfusionMatrix
from kauldron_core.metrics.directions import directions_of
from kauldron_core.metrics.fields import (
    concat_field,
    max_field,
    min_field,
    state_field,
    static_field,
    sum_field,
    truncate_field,
)
from kauldron_core.metrics.global_norm import GlobalNorm
from kauldron_core.metrics.histogram import Histogram
from kauldron_core.metrics.image import Psnr, Ssim
from kauldron_core.metrics.language import Perplexity
from kauldron_core.metrics.mask import MaskError, align_mask, combine_masks
from kauldron_core.metrics.metric import Metric, NoopMetric, accepts_padding
from kauldron_core.metrics.moments import R2, Std
from kauldron_core.metrics.norm import Norm
from kauldron_core.metrics.ranking import AveragePrecision, RocAuc
from kauldron_core.metrics.regression import Average, Mae, Mse, SingleDimension
from kauldron_core.metrics.rules import EMPTY
from kauldron_core.metrics.shapes import weights_of
from kauldron_core.metrics.state import EmptyState, State, reduce_states, to_host
from kauldron_core.metrics.trees import TreeMap, TreeReduce
from kauldron_core.metrics.wrappers import SkipIfMissing, WeightedAverage

__all__ = [
    "Accuracy",
    "AutoState",
    "Average",
    "AveragePrecision",
    "AverageState",
    "BinaryAccuracy",
    "ConfusionMatrix",
    "ECE",
    "EMPTY",
    "EmptyState",
    "F1",
    "GlobalNorm",
    "Histogram",
    "Mae",
    "MaskError",
    "Metric",
    "Mse",
    "NoopMetric",
    "Norm",
    "Perplexity",
    "Precision",
    "Precision1",
    "Psnr",
    "R2",
    "Recall",
    "RocAuc",
    "SingleDimension",
    "SkipIfMissing",
    "Ssim",
    "State",
    "Std",
    "TokenAccuracy",
    "TreeMap",
    "TreeReduce",
    "WeightedAverage",
    "accepts_padding",
    "align_mask",
    "combine_masks",
    "concat_field",
    "directions_of",
    "max_field",
    "min_field",
    "reduce_states",
    "state_field",
    "static_field",
    "sum_field",
    "to_host",
    "truncate_field",
    "weights_of",
]
