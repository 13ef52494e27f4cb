"""Losses: frozen descriptions whose masks, weights and averages the base class takes care of."""

from kauldron_core.losses.cross_entropy import SoftmaxCrossEntropyWithIntLabels
from kauldron_core.losses.loss import Loss, compute_losses, named_losses
from kauldron_core.losses.simple import L1, L2, AbsoluteValue, Huber, Value

__all__ = [
    "AbsoluteValue",
    "Huber",
    "L1",
    "L2",
    "Loss",
    "SoftmaxCrossEntropyWithIntLabels",
    "Value",
    "compute_losses",
    "named_losses",
]
