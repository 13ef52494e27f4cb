"""How likely a model finds the targets: the scores of SeqIO's score metrics."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.forward import Context


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogLikelihood:
    """The sum of the log-likelihoods of an example's target tokens.

    Attributes:
      logits: Key of float[batch, length, vocabulary].
      targets: Key of int[batch, length].
      weights: Key of float[batch, length], 0 for tokens that don't count; None counts all tokens but 0.
    """

    logits: kontext.Key = "preds"
    targets: kontext.Key = "batch.decoder_target_tokens"
    weights: kontext.Key | None = "batch.decoder_loss_weights"

    def of(self, context: Context) -> jax.Array:
        """Returns float32[batch]. Traced."""
        keys = {"logits": self.logits, "targets": self.targets, "weights": self.weights}
        found: dict[str, Any] = kontext.resolve_from_keypaths(context, keys, at="score")
        targets = found["targets"]
        gained = jax.nn.log_softmax(found["logits"].astype(jnp.float32))
        gained = jnp.take_along_axis(gained, targets[..., None], axis=-1)[..., 0]
        weights = found.get("weights", targets != 0)
        return jnp.where(weights != 0, gained * weights, 0.0).sum(-1)
