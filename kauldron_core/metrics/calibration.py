"""Whether a classifier is as often right as it is sure."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core import kontext
from kauldron_core.ktyping import Num, typechecked
from kauldron_core.metrics.auto_state import AutoState
from kauldron_core.metrics.fields import sum_field
from kauldron_core.metrics.mask import apply_mask
from kauldron_core.metrics.metric import Metric
from kauldron_core.metrics.shapes import Labels, align_labels, as_float, weights_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class ECE(Metric):
    """Expected calibration error: mean distance of confidence and accuracy over bins of confidence.

    Source: Guo et al., On Calibration of Modern Neural Networks (2017), equation 3.

    Attributes:
      logits: Shape `*b n`.
      labels: Integer classes of shape `*b` or `*b 1`.
      mask: Booleans or weights for the leading dimensions of the labels.
      bins: Of equal width; each holds its right edge.
    """

    better = "lower"

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    bins: int = 15

    @flax.struct.dataclass
    class State(AutoState["ECE"]):
        """Sums over the examples of each bin."""

        counts: jax.Array = sum_field()
        correct: jax.Array = sum_field()
        confidence: jax.Array = sum_field()

        def compute(self) -> Any:
            total = np.asarray(self.counts).sum()
            return np.abs(self.correct - self.confidence).sum() / total if total > 0 else np.float64(0.0)

    @typechecked
    def get_state(self, logits: Num["*b n"], labels: Labels, mask: Any = None) -> Any:
        probs = jax.nn.softmax(as_float(logits))
        labels = align_labels(labels, probs.shape[:-1]).reshape(-1)
        weights = weights_of(mask, probs.shape[:-1]).reshape(-1)
        probs = probs.reshape(-1, probs.shape[-1])
        confidence, classes = probs.max(axis=-1), probs.argmax(axis=-1)
        place = jnp.clip(jnp.ceil(confidence * self.bins).astype(jnp.int32) - 1, 0, self.bins - 1)
        zeros = jnp.zeros(self.bins, weights.dtype)
        return self.State(
            counts=zeros.at[place].add(weights),
            correct=zeros.at[place].add(jnp.where(classes == labels, weights, 0)),
            confidence=jnp.zeros(self.bins, probs.dtype).at[place].add(apply_mask(confidence, weights)),
        )
