"""Cross entropies: of classes by index, of distributions, and of independent yes-or-no labels."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.ktyping import Array, Float, Num, typechecked
from kauldron_core.losses.loss import Loss
from kauldron_core.metrics import AverageState, combine_masks
from kauldron_core.metrics.language import token_cross_entropy
from kauldron_core.metrics.shapes import Labels, align_labels, as_float


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftmaxCrossEntropyWithIntLabels(Loss):
    """Cross entropy of softmax(logits) and classes given by index.

    Source: Chowdhery et al., PaLM (2022), section 5, for the z-loss; Szegedy et al., Rethinking the Inception
    Architecture (2016), section 7, for label smoothing.

    Attributes:
      logits: Shape `*b n`.
      labels: Integers of shape `*b` or `*b 1`.
      label_smoothing: Share of the target's probability that is spread evenly over all classes.
      z_loss: Factor of the squared log of the softmax's normalizer, which keeps logits small.
      ignore_index: Label of positions that do not count.
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    ignore_index: int | None = None

    @typechecked
    def get_values(self, logits: Num["*b n"], labels: Labels) -> Float["*b"]:
        values = token_cross_entropy(logits, labels)
        return _smooth(values, logits, self.label_smoothing) + _z_loss(logits, self.z_loss)

    def get_state(self, *, mask: Any = None, **kwargs: Any) -> AverageState[Any]:
        if self.ignore_index is not None:
            shape = jnp.shape(kwargs["logits"])[:-1]
            mask = combine_masks(mask, align_labels(kwargs["labels"], shape) != self.ignore_index)
        return super().get_state(mask=mask, **kwargs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftmaxCrossEntropy(Loss):
    """Cross entropy of softmax(logits) and a distribution over the classes, such as a one-hot one.

    Attributes:
      logits: Shape `*b n`.
      labels: The same shape.
      label_smoothing: Share of the target's probability that is spread evenly over all classes.
      z_loss: Factor of the squared log of the softmax's normalizer.
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED
    label_smoothing: float = 0.0
    z_loss: float = 0.0

    @typechecked
    def get_values(self, logits: Num["*b n"], labels: Array["*b n"]) -> Float["*b"]:
        labels = as_float(labels)
        log_probs = jax.nn.log_softmax(as_float(logits))
        # A class whose logit is minus infinity costs nothing where its label is 0.
        values = -jnp.where(labels == 0, 0.0, labels * log_probs).sum(axis=-1)
        return _smooth(values, logits, self.label_smoothing) + _z_loss(logits, self.z_loss)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SigmoidBinaryCrossEntropy(Loss):
    """Cross entropy of sigmoid(logits) and labels between 0 and 1, each element for itself.

    Attributes:
      logits: Any shape.
      labels: The same shape; a last dimension of size 1 may be missing.
    """

    logits: kontext.Key = kontext.REQUIRED
    labels: kontext.Key = kontext.REQUIRED

    @typechecked
    def get_values(self, logits: Num["*b"], labels: Array["*c"]) -> Float["*b"]:
        logits = as_float(logits)
        labels = as_float(labels)
        if logits.shape == (*labels.shape, 1):
            labels = labels[..., None]
        labels = align_labels(labels, logits.shape)
        # max(x, 0) - x z + log(1 + exp(-|x|)) is finite for every logit.
        return jnp.maximum(logits, 0) - logits * labels + jnp.log1p(jnp.exp(-jnp.abs(logits)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class KL(Loss):
    """Divergence of softmax(logits) from a target distribution: the sum of t (log t - log p).

    Attributes:
      logits: Shape `*b n`.
      targets: The same shape: probabilities, or logits of them.
      targets_are_logits: Which of the two.
    """

    logits: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    targets_are_logits: bool = False

    @typechecked
    def get_values(self, logits: Num["*b n"], targets: Num["*b n"]) -> Float["*b"]:
        targets = as_float(targets)
        log_probs = jax.nn.log_softmax(as_float(logits))
        if self.targets_are_logits:
            log_targets = jax.nn.log_softmax(targets)
            return (jnp.exp(log_targets) * (log_targets - log_probs)).sum(axis=-1)
        # t log t goes to 0 with t; its gradient must not see the log of 0.
        log_targets = jnp.log(jnp.where(targets > 0, targets, 1.0))
        return jnp.where(targets > 0, targets * (log_targets - log_probs), 0.0).sum(axis=-1)


def _smooth(values: jax.Array, logits: Any, share: Any) -> jax.Array:
    if isinstance(share, float | int) and share == 0:
        return values
    evenly = -jax.nn.log_softmax(as_float(logits)).mean(axis=-1)
    return (1 - share) * values + share * evenly


def _z_loss(logits: Any, factor: Any) -> jax.Array | float:
    if isinstance(factor, float | int) and factor == 0:
        return 0.0
    return factor * jax.nn.logsumexp(as_float(logits), axis=-1) ** 2
