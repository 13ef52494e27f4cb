"""Metrics of the order of scores, which need all of them: they are collected on the host."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import flax.struct
import jax
import numpy as np

from kauldron_core import kontext
from kauldron_core.ktyping import Num, typechecked
from kauldron_core.metrics.auto_state import AutoState
from kauldron_core.metrics.fields import concat_field
from kauldron_core.metrics.metric import Metric
from kauldron_core.metrics.shapes import Labels, align_scores, weights_of
from kauldron_core.metrics.state import MetricT


@flax.struct.dataclass
class CollectedScores(AutoState[MetricT]):
    """Label, scores and weight of every example seen. Examples of weight 0 are dropped when it is computed."""

    labels: jax.Array = concat_field()
    scores: jax.Array = concat_field()
    weights: jax.Array = concat_field()

    def is_empty(self) -> bool:
        """Returns whether no example counted."""
        return super().is_empty() or not len(self.finalize().seen()[0])

    def seen(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns labels (n,), scores (n, c) and weights (n,) of the examples that count, in 64 bits."""
        counts = np.asarray(self.weights) != 0
        scores = np.asarray(self.scores)[counts].astype(np.float64)
        return np.asarray(self.labels)[counts], scores, np.asarray(self.weights)[counts].astype(np.float64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankingMetric(Metric):
    """Base class of the metrics that collect scores.

    Attributes:
      logits: Scores of shape `*b n`, or one for each label when there are two classes.
      labels: Integer classes of shape `*b` or `*b 1`.
      mask: Booleans or weights for the leading dimensions of the labels.
      unique_labels: The classes to average over. By default those that occur.
    """

    better = "higher"

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    unique_labels: Sequence[int] | None = None

    def __post_init__(self):
        if self.unique_labels is not None:
            # The metric is compared and hashed as the parent of its states.
            object.__setattr__(self, "unique_labels", tuple(self.unique_labels))

    @typechecked
    def get_state(self, logits: Num["*b"] | Num["*b n"], labels: Labels, mask: Any = None) -> Any:
        labels, scores = align_scores(labels, logits)
        weights = weights_of(mask, labels.shape).reshape(-1)
        return self.State(labels=labels.reshape(-1), scores=scores.reshape(-1, scores.shape[-1]), weights=weights)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RocAuc(RankingMetric):
    """Area under the curve of true over false positives; ties count half.

    With more than two classes it is taken on the softmax of the logits and averaged: `ovr` each class against the
    rest, `ovo` each pair of classes. NaN when only one class was seen.

    Attributes:
      multi_class_mode: `ovr` or `ovo`.
    """

    multi_class_mode: Literal["ovr", "ovo"] = "ovr"

    @flax.struct.dataclass
    class State(CollectedScores["RocAuc"]):
        def compute(self) -> Any:
            labels, scores, weights = self.seen()
            if scores.shape[-1] <= 2:
                return roc_auc(labels == 1, _binary(scores), weights)
            probs, classes = _softmax(scores), _classes(self.parent, labels)
            if self.parent is not None and self.parent.multi_class_mode == "ovo":
                return _one_versus_one(labels, probs, weights, classes)
            return _one_versus_rest(roc_auc, labels, probs, weights, classes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AveragePrecision(RankingMetric):
    """Mean of the precisions at each threshold, weighted by the recall gained there; no interpolation.

    With more than two classes it is the mean over each class against the rest, on the softmax of the logits. NaN when
    there is nothing to find.
    """

    @flax.struct.dataclass
    class State(CollectedScores["AveragePrecision"]):
        def compute(self) -> Any:
            labels, scores, weights = self.seen()
            if scores.shape[-1] <= 2:
                return average_precision(labels == 1, _binary(scores), weights)
            classes = _classes(self.parent, labels)
            return _one_versus_rest(average_precision, labels, _softmax(scores), weights, classes)


def roc_auc(is_positive: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> np.float64:
    """Returns the chance that a positive example scores higher than a negative one, ties counting half."""
    if is_positive.all() or not is_positive.any():
        return np.float64("nan")
    from sklearn.metrics import roc_auc_score  # Heavy; needed once an evaluation ends.

    return np.float64(roc_auc_score(is_positive, _ranks(scores), sample_weight=weights))


def average_precision(is_positive: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> np.float64:
    """Returns the sum over thresholds of precision times the recall gained."""
    if not is_positive.any():
        return np.float64("nan")
    from sklearn.metrics import average_precision_score  # Heavy; needed once an evaluation ends.

    return np.float64(average_precision_score(is_positive, _ranks(scores), sample_weight=weights))


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Returns numbers in the order of the scores, equal for equal ones: scikit-learn refuses NaN and infinities."""
    return np.unique(scores, return_inverse=True)[1]


def _one_versus_rest(
    score: Callable[..., np.float64], labels: np.ndarray, probs: np.ndarray, weights: np.ndarray, classes: Sequence[int]
) -> np.float64:
    return _mean([score(labels == index, probs[:, index], weights) for index in classes])


def _one_versus_one(labels: np.ndarray, probs: np.ndarray, weights: np.ndarray, classes: Sequence[int]) -> np.float64:
    values = []
    for first, second in itertools.combinations(classes, 2):
        chosen = (labels == first) | (labels == second)
        pair, part, weight = labels[chosen], probs[chosen], weights[chosen]
        ways = [roc_auc(pair == index, part[:, index], weight) for index in (first, second)]
        values.append(np.mean(ways))
    return _mean(values)


def _mean(values: Sequence[Any]) -> np.float64:
    return np.float64(np.mean(values)) if values else np.float64("nan")


def _classes(parent: Any, labels: np.ndarray) -> Sequence[int]:
    wanted = getattr(parent, "unique_labels", None)
    return wanted if wanted is not None else [int(label) for label in np.unique(labels)]


def _binary(scores: np.ndarray) -> np.ndarray:
    """Returns one score that orders examples as the probability of class 1 does."""
    return scores[:, -1] - scores[:, 0] if scores.shape[-1] == 2 else scores[:, 0]


def _softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
