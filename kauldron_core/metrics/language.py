"""Metrics of language models."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core import kontext
from kauldron_core.ktyping import Num, typechecked
from kauldron_core.metrics.average import AverageState
from kauldron_core.metrics.host import is_on_host
from kauldron_core.metrics.mask import combine_masks
from kauldron_core.metrics.metric import Metric
from kauldron_core.metrics.shapes import Labels, align_labels, as_float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perplexity(Metric):
    """Exponential of the mean cross entropy of all tokens, each counting once however they are batched.

    Attributes:
      logits: Shape `*b n`.
      labels: Integer tokens of shape `*b` or `*b 1`.
      mask: Booleans or weights for the leading dimensions of the labels.
      ignore_index: Label of tokens that do not count, such as padding.
    """

    better = "lower"

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    ignore_index: int | None = None

    @flax.struct.dataclass
    class State(AverageState["Perplexity"]):
        def compute(self) -> Any:
            return (np if is_on_host(self) else jnp).exp(super().compute())

    @typechecked
    def get_state(self, logits: Num["*b n"], labels: Labels, mask: Any = None) -> AverageState:
        values = token_cross_entropy(logits, labels)
        if self.ignore_index is not None:
            mask = combine_masks(mask, align_labels(labels, values.shape) != self.ignore_index)
        return self.State.from_values(values, mask)


def token_cross_entropy(logits: Any, labels: Any) -> jax.Array:
    """Returns the negative log of the softmax of `logits` (`*b n`) at `labels` (`*b` or `*b 1`)."""
    log_probs = jax.nn.log_softmax(as_float(logits))
    labels = align_labels(labels, log_probs.shape[:-1])
    # An index outside (a label to be ignored) must not turn into NaN.
    labels = jnp.clip(labels, 0, log_probs.shape[-1] - 1)
    return -jnp.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
