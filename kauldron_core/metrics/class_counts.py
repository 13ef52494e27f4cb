"""Precision, recall and F1, and the counts per class that they are made of."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core import kontext
from kauldron_core.ktyping import Num, typechecked
from kauldron_core.metrics.auto_state import AutoState
from kauldron_core.metrics.fields import sum_field
from kauldron_core.metrics.metric import Metric
from kauldron_core.metrics.shapes import Labels, align_scores, check_one_given, weights_of
from kauldron_core.metrics.state import MetricT


@flax.struct.dataclass
class ClassCounts(AutoState[MetricT]):
    """Counts for each class (for the positive one only when binary), integers unless the mask holds weights.

    Attributes:
      hits: Labels of the class that were predicted.
      predicted: Predictions of the class.
      actual: Labels of the class.
      count: Labels of all classes.
    """

    hits: jax.Array = sum_field()
    predicted: jax.Array = sum_field()
    actual: jax.Array = sum_field()
    count: jax.Array = sum_field()

    def average(self, numerator: Any, denominator: Any) -> Any:
        """Returns the ratio of two counts per class, averaged as the metric says; 0 where nothing was counted."""
        if getattr(self.parent, "average", "macro") == "micro":
            return _ratio(numerator.sum(), denominator.sum())
        is_present = (self.predicted + self.actual) > 0
        ratios = _ratio(numerator, denominator)
        return ratios[is_present].mean() if is_present.any() else np.float64(0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassCountsMetric(Metric):
    """Base class of metrics made of counts per class.

    Attributes:
      labels: Integer classes of shape `*b` or `*b 1`.
      logits: Scores `*b n`, or one score for each label when binary. Set either this or `pred_labels`.
      pred_labels: Predicted classes, of the shape of the labels.
      mask: Booleans or weights for the leading dimensions of the labels.
      average: `binary` is about the class `positive` only; `macro` is the mean over the classes that occur in labels or
        predictions; `micro` counts over all classes.
      num_classes: Needed with `pred_labels`, unless binary.
      positive: The class that counts when binary.
      threshold: Above which a single score means the positive class.
    """

    labels: kontext.Key = kontext.REQUIRED
    logits: kontext.Key | None = None
    pred_labels: kontext.Key | None = None
    mask: kontext.Key | None = None
    average: Literal["binary", "macro", "micro"] = "macro"
    num_classes: int | None = None
    positive: int = 1
    threshold: float = 0.0

    def __post_init__(self):
        if self.average not in ("binary", "macro", "micro"):
            raise ValueError(f"{type(self).__name__}: average is 'binary', 'macro' or 'micro', not {self.average!r}")

    @typechecked
    def get_state(
        self,
        labels: Labels,
        logits: Num["*b"] | Num["*b n"] | None = None,
        pred_labels: Labels | None = None,
        mask: Any = None,
    ) -> Any:
        check_one_given(self, logits, pred_labels)
        labels, classes, num_classes = self._predict(labels, logits, pred_labels)
        weights = weights_of(mask, labels.shape).reshape(-1, 1)
        wanted = jnp.arange(num_classes) if self.average != "binary" else jnp.asarray([self.positive])
        is_actual, is_predicted = labels.reshape(-1, 1) == wanted, classes.reshape(-1, 1) == wanted
        return self.State(
            hits=_total(is_actual & is_predicted, weights),
            predicted=_total(is_predicted, weights),
            actual=_total(is_actual, weights),
            count=weights.sum(),
        )

    def _predict(self, labels: Any, logits: Any, pred_labels: Any) -> tuple[jax.Array, jax.Array, int]:
        """Returns labels, predicted classes and how many classes there are."""
        labels, scores = align_scores(labels, logits if logits is not None else pred_labels)
        if scores.shape[-1] > 1 and logits is not None:
            return labels, scores.argmax(axis=-1), scores.shape[-1]
        if scores.shape[-1] > 1:
            raise ValueError(f"pred_labels of shape {jnp.shape(pred_labels)} do not fit labels of shape {labels.shape}")
        classes = scores[..., 0]
        if logits is not None:
            classes = jnp.where(classes > self.threshold, self.positive, self.positive - 1)
        if self.num_classes is None and self.average != "binary":
            raise ValueError(f"{type(self).__name__}: num_classes has to be set for average={self.average!r}")
        return labels, classes, self.num_classes or 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Precision(ClassCountsMetric):
    """Of what was predicted as a class, the share that is one."""

    better = "higher"

    @flax.struct.dataclass
    class State(ClassCounts["Precision"]):
        def compute(self) -> Any:
            return self.average(self.hits, self.predicted)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recall(ClassCountsMetric):
    """Of the labels of a class, the share that was predicted as one."""

    better = "higher"

    @flax.struct.dataclass
    class State(ClassCounts["Recall"]):
        def compute(self) -> Any:
            return self.average(self.hits, self.actual)


@dataclasses.dataclass(frozen=True, kw_only=True)
class F1(ClassCountsMetric):
    """Harmonic mean of precision and recall, of each class and then averaged."""

    better = "higher"

    @flax.struct.dataclass
    class State(ClassCounts["F1"]):
        def compute(self) -> Any:
            return self.average(2 * self.hits, self.predicted + self.actual)


def _total(selected: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.where(selected, weights, jnp.zeros((), weights.dtype)).sum(axis=0)


def _ratio(numerator: Any, denominator: Any) -> Any:
    return np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1), 0.0)
