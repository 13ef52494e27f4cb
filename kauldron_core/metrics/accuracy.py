"""How often a classifier is right. Counts are integers, so these are exact."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.ktyping import Array, Num, typechecked
from kauldron_core.metrics.average import AverageState
from kauldron_core.metrics.mask import combine_masks
from kauldron_core.metrics.metric import Metric
from kauldron_core.metrics.shapes import Labels, align_labels, align_scores, check_one_given, drop_last_one


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accuracy(Metric):
    """Share of labels among the `top_k` predicted classes.

    Attributes:
      labels: Integer classes of shape `*b` or `*b 1`.
      logits: Scores of shape `*b n`; ties go to the lower class. Set either this or `pred_labels`.
      pred_labels: Predicted classes, of the shape of the labels.
      mask: Booleans or weights for the leading dimensions of the labels.
      top_k: How many classes may be predicted (needs logits).
    """

    better = "higher"

    labels: kontext.Key = kontext.REQUIRED
    logits: kontext.Key | None = None
    pred_labels: kontext.Key | None = None
    mask: kontext.Key | None = None
    top_k: int = 1

    @flax.struct.dataclass
    class State(AverageState["Accuracy"]): ...

    def __post_init__(self):
        if self.logits is not None and self.pred_labels is not None:
            raise ValueError("Accuracy takes logits or pred_labels, not both")
        if self.top_k < 1 or (self.top_k > 1 and self.pred_labels is not None):
            raise ValueError(f"Accuracy: top_k={self.top_k} has to be at least 1, and 1 for pred_labels")

    @typechecked
    def get_state(
        self,
        labels: Labels,
        logits: Num["*b n"] | None = None,
        pred_labels: Labels | None = None,
        mask: Any = None,
    ) -> AverageState:
        return self.State.from_values(self._correct(labels, logits, pred_labels), self._mask(labels, mask))

    def _mask(self, labels: Any, mask: Any) -> Any:
        """Returns which of the labels count."""
        return mask

    def _correct(self, labels: Any, logits: Any, pred_labels: Any) -> jax.Array:
        check_one_given(self, logits, pred_labels)
        if logits is None:
            return _equal(labels, pred_labels)
        logits = jnp.asarray(logits)
        labels = align_labels(labels, logits.shape[:-1])
        if self.top_k == 1:
            return logits.argmax(axis=-1) == labels
        _, classes = jax.lax.top_k(logits, min(self.top_k, logits.shape[-1]))
        return (classes == labels[..., None]).any(axis=-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenAccuracy(Accuracy):
    """Accuracy over the tokens of sequences, each token counting once however they are batched.

    Attributes:
      ignore_index: Label of tokens that do not count, such as padding.
    """

    ignore_index: int | None = None

    def _mask(self, labels: Any, mask: Any) -> Any:
        return mask if self.ignore_index is None else combine_masks(mask, jnp.asarray(labels) != self.ignore_index)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinaryAccuracy(Metric):
    """Share of labels (0 or 1) that the sign of their logit gives.

    Attributes:
      labels: Shape `*b` or `*b 1`.
      logits: One for each label.
      mask: Booleans or weights for the leading dimensions of the labels.
    """

    better = "higher"

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    @flax.struct.dataclass
    class State(AverageState["BinaryAccuracy"]): ...

    @typechecked
    def get_state(self, logits: Num["*b"] | Num["*b 1"], labels: Labels, mask: Any = None) -> AverageState:
        labels, scores = align_scores(labels, logits)
        if scores.shape[-1] != 1:
            raise ValueError(f"BinaryAccuracy: logits {jnp.shape(logits)} are not one for each label {labels.shape}")
        return self.State.from_values((scores[..., 0] > 0) == (labels != 0), mask)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Precision1(Metric):
    """Share of examples whose best class is among their labels, for examples with several labels.

    Attributes:
      logits: Shape `*b n`.
      labels: Shape `*b n`, 1 for each class that is right.
      mask: Booleans or weights for the leading dimensions `*b`.
    """

    better = "higher"

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    @flax.struct.dataclass
    class State(AverageState["Precision1"]): ...

    @typechecked
    def get_state(self, logits: Num["*b n"], labels: Array["*b n"], mask: Any = None) -> AverageState:
        logits, labels = jnp.asarray(logits), jnp.asarray(labels)
        labels = align_labels(labels, logits.shape)
        best = logits.argmax(axis=-1, keepdims=True)
        return self.State.from_values(jnp.take_along_axis(labels, best, axis=-1)[..., 0], mask)


def _equal(labels: Any, pred_labels: Any) -> jax.Array:
    labels, pred_labels = jnp.asarray(labels), jnp.asarray(pred_labels)
    shape = drop_last_one(labels.shape, pred_labels.shape)
    return align_labels(labels, shape) == align_labels(pred_labels, shape, what="pred_labels")
