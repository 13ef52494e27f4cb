"""Losses: frozen descriptions whose masks, weights and averages the base class takes care of."""

from kauldron_core.losses.cross_entropy import (
    KL,
    SigmoidBinaryCrossEntropy,
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyWithIntLabels,
)
from kauldron_core.losses.loss import Loss, Schedule
from kauldron_core.losses.similarity import Contrastive, Cosine, NegativeCosineSimilarity
from kauldron_core.losses.simple import L1, L2, AbsoluteValue, Huber, Value
from kauldron_core.losses.total import LossGroup, compute_losses, loss_totals, named_losses

__all__ = [
    "AbsoluteValue",
    "Contrastive",
    "Cosine",
    "Huber",
    "KL",
    "L1",
    "L2",
    "Loss",
    "LossGroup",
    "NegativeCosineSimilarity",
    "Schedule",
    "SigmoidBinaryCrossEntropy",
    "SoftmaxCrossEntropy",
    "SoftmaxCrossEntropyWithIntLabels",
    "Value",
    "compute_losses",
    "loss_totals",
    "named_losses",
]
