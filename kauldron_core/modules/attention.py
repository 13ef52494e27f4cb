"""Attention over sequences, with its weights open to key paths."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from kauldron_core.ktyping import Bool, Float, typechecked
from kauldron_core.modules.interms import interms_property
from kauldron_core.modules.mode import train_property
from kauldron_core.modules.positions import Initializer


class ImprovedMultiHeadDotProductAttention(nn.Module):
    """Multi-head attention whose widths are free.

    The weights are at `interms.<path>.attn_weights[0]`, of shape `*b heads queries keys`.

    Attributes:
      num_heads: Number of heads.
      qk_features: Width of queries and keys over all heads; that of the query inputs where unset.
      v_features: Width of the values over all heads; `qk_features` where unset.
      out_features: Width of the output; that of the query inputs where unset.
      softmax_axis: Over what the weights sum to 1: keys (-1), or queries (-2) that compete for keys.
      normalize_qk: Whether queries and keys are normalised first, which keeps large models stable.
      kernel_init: Initial value of the projections.
      bias_init: Initial value of their biases.
      use_bias: Whether they have biases.
    """

    num_heads: int
    qk_features: int | None = None
    v_features: int | None = None
    out_features: int | None = None
    softmax_axis: int = -1
    normalize_qk: bool = False
    kernel_init: Initializer = nn.initializers.lecun_normal()
    bias_init: Initializer = nn.initializers.zeros
    use_bias: bool = True

    interms = interms_property()

    @nn.compact
    @typechecked
    def __call__(
        self,
        inputs_q: Float["*b q d1"],
        inputs_k: Float["*b k d2"] | None = None,
        inputs_v: Float["*b k d3"] | None = None,
        *,
        bias: Float["*#b #h #q #k"] | None = None,
        mask: Bool["*#b #h #q #k"] | None = None,
    ) -> Float["*b q d4"]:
        """Weighted mean of the values for each query.

        Args:
          inputs_q: Inputs of the queries.
          inputs_k: Inputs of the keys; those of the queries where unset.
          inputs_v: Inputs of the values; those of the keys where unset.
          bias: Added to the logits.
          mask: False where nothing may be attended to.
        """
        inputs_k = inputs_q if inputs_k is None else inputs_k
        inputs_v = inputs_k if inputs_v is None else inputs_v
        qk_features = self.qk_features or inputs_q.shape[-1]
        query = self._project(inputs_q, qk_features, "query")
        key = self._project(inputs_k, qk_features, "key")
        value = self._project(inputs_v, self.v_features or qk_features, "value")
        if self.normalize_qk:
            query = nn.LayerNorm(use_bias=False, name="query_norm")(query)
            key = nn.LayerNorm(use_bias=False, name="key_norm")(key)
        weights = attention_weights(query, key, bias=bias, mask=mask, axis=self.softmax_axis)
        self.interms["attn_weights"] = weights
        x = jnp.einsum("...hqk,...khd->...qhd", weights, value)
        out = nn.DenseGeneral(
            self.out_features or inputs_q.shape[-1], axis=(-2, -1), name="out", **self._kernel_settings
        )
        return out(x)

    def _project(self, inputs: jax.Array, features: int, name: str) -> jax.Array:
        if features % self.num_heads:
            raise ValueError(f"{type(self).__name__}: {self.num_heads} heads do not divide {features} features.")
        shape = (self.num_heads, features // self.num_heads)
        return nn.DenseGeneral(shape, name=name, **self._kernel_settings)(inputs)

    @property
    def _kernel_settings(self) -> dict[str, Any]:
        return {"kernel_init": self.kernel_init, "bias_init": self.bias_init, "use_bias": self.use_bias}


class MultiHeadDotProductAttention(nn.MultiHeadDotProductAttention):
    """Flax's attention; its dropout is on in training, without a word from the caller."""

    is_training = train_property()

    def __call__(self, *args: Any, deterministic: bool | None = None, **kwargs: Any) -> jax.Array:
        """Output of `flax.linen.MultiHeadDotProductAttention`."""
        if deterministic is None and self.deterministic is None:
            deterministic = self.dropout_rate == 0 or not self.is_training
        return super().__call__(*args, deterministic=deterministic, **kwargs)


@typechecked
def attention_weights(
    query: Float["*b q h d"],
    key: Float["*b k h d"],
    *,
    bias: Float["*#b #h #q #k"] | None = None,
    mask: Bool["*#b #h #q #k"] | None = None,
    axis: int = -1,
) -> Float["*b h q k"]:
    """Returns the softmax of the scaled products of queries and keys."""
    logits = jnp.einsum("...qhd,...khd->...hqk", query, key) * query.shape[-1] ** -0.5
    if bias is not None:
        logits = logits + bias
    if mask is not None:
        # Finite: a query that may attend to nothing gets equal weights and no NaN.
        logits = jnp.where(mask, logits, jnp.finfo(logits.dtype).min)
    return nn.softmax(logits, axis=axis)
