"""How often a classifier is right."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.metrics.average import AverageState
from kauldron_core.metrics.labels import align_labels, drop_last_one
from kauldron_core.metrics.metric import Metric


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accuracy(Metric):
    """Share of labels among the `top_k` predicted classes. Counts are integers, so it is exact.

    Attributes:
      labels: Integer classes of shape `*b` or `*b 1`.
      logits: Scores of shape `*b n`; ties go to the lower class. Set either this or `pred_labels`.
      pred_labels: Predicted classes, of the shape of the labels.
      mask: Optional booleans or weights for the leading dimensions of the labels.
      top_k: How many classes may be predicted (needs logits).
    """

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
            raise ValueError(f"Accuracy: top_k={self.top_k} needs logits and at least 1")

    def get_state(self, labels: Any, logits: Any = None, pred_labels: Any = None, mask: Any = None) -> State:
        if (logits is None) == (pred_labels is None):
            raise ValueError("Accuracy needs either logits or pred_labels")
        correct = self._top_k(labels, logits) if logits is not None else _equal(labels, pred_labels)
        return self.State.from_values(correct, mask)

    def _top_k(self, labels: Any, logits: Any) -> jax.Array:
        logits = jnp.asarray(logits)
        labels = align_labels(labels, logits.shape[:-1])
        if self.top_k == 1:
            return logits.argmax(axis=-1) == labels
        _, classes = jax.lax.top_k(logits, min(self.top_k, logits.shape[-1]))
        return (classes == labels[..., None]).any(axis=-1)


def _equal(labels: Any, pred_labels: Any) -> jax.Array:
    labels, pred_labels = jnp.asarray(labels), jnp.asarray(pred_labels)
    shape = drop_last_one(labels.shape, pred_labels.shape)
    return align_labels(labels, shape) == align_labels(pred_labels, shape, what="pred_labels")
