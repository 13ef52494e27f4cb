"""Which class was taken for which."""

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
from kauldron_core.metrics.shapes import Labels, align_labels, check_one_given, drop_last_one, weights_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfusionMatrix(Metric):
    """Counts by label (row) and predicted class (column). Labels outside of 0..num_classes-1 are left out.

    Attributes:
      labels: Integer classes of shape `*b` or `*b 1`.
      logits: Scores of shape `*b n`. Set either this or `pred_labels`.
      pred_labels: Predicted classes, of the shape of the labels.
      mask: Booleans or weights for the leading dimensions of the labels.
      num_classes: Needed with `pred_labels`; the number of logits otherwise.
      normalize: Whether to divide by the sum of the row (`true`), of the column (`pred`) or of everything (`all`).
    """

    labels: kontext.Key = kontext.REQUIRED
    logits: kontext.Key | None = None
    pred_labels: kontext.Key | None = None
    mask: kontext.Key | None = None
    num_classes: int | None = None
    normalize: Literal["true", "pred", "all"] | None = None

    @flax.struct.dataclass
    class State(AutoState["ConfusionMatrix"]):
        counts: jax.Array = sum_field()

        def compute(self) -> Any:
            """Returns the matrix, an array."""
            axes = {"true": 1, "pred": 0, "all": None}
            normalize = self.parent.normalize if self.parent is not None else None
            if normalize is None:
                return self.counts
            total = np.asarray(self.counts.sum(axis=axes[normalize], keepdims=True))
            return np.where(total > 0, self.counts / np.where(total > 0, total, 1), 0.0)

    @typechecked
    def get_state(
        self,
        labels: Labels,
        logits: Num["*b n"] | None = None,
        pred_labels: Labels | None = None,
        mask: Any = None,
    ) -> Any:
        check_one_given(self, logits, pred_labels)
        if logits is not None:
            logits = jnp.asarray(logits)
            labels, classes = align_labels(labels, logits.shape[:-1]), logits.argmax(axis=-1)
        else:
            shape = drop_last_one(jnp.shape(labels), jnp.shape(pred_labels))
            labels, classes = align_labels(labels, shape), align_labels(pred_labels, shape, what="pred_labels")
        size = self.num_classes or (logits.shape[-1] if logits is not None else None)
        if size is None:
            raise ValueError("ConfusionMatrix: num_classes has to be set for pred_labels")
        return self.State(counts=_count(labels, classes, weights_of(mask, labels.shape), size))


def _count(labels: jax.Array, classes: jax.Array, weights: jax.Array, size: int) -> jax.Array:
    # A negative index would count from the end.
    is_class = (labels >= 0) & (classes >= 0)
    row, column = jnp.where(is_class, labels, size), jnp.where(is_class, classes, size)
    return jnp.zeros((size, size), weights.dtype).at[row, column].add(weights, mode="drop")
