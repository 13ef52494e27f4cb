"""Cross entropies: classes by index or as distributions, and independent yes-or-no labels."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.losses.loss import Loss
from kauldron_core.metrics.shapes import align_labels


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftmaxCrossEntropyWithIntLabels(Loss):
    """Cross entropy of softmax(logits) and classes given by index.

    Attributes:
      logits: Shape `*b n`.
      labels: Integers of shape `*b` or `*b 1`.
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED

    def get_values(self, logits: Any, labels: Any) -> jax.Array:
        logits = jnp.asarray(logits)
        labels = align_labels(labels, logits.shape[:-1])
        log_probs = jax.nn.log_softmax(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)))
        return -jnp.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
