"""Transformer blocks: attention and an MLP, each with its norm, in the usual three arrangements."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax

from kauldron_core.ktyping import Float, typechecked
from kauldron_core.modules.mode import Dropout, is_static_zero
from kauldron_core.modules.positions import Initializer


class TransformerMLP(nn.Module):
    """Two dense layers; the output is as wide as the input.

    Attributes:
      hidden_size: Width between them; four times that of the input where unset.
      activation_fn: Applied between them.
      kernel_init: Initial value of the kernels.
      bias_init: Initial value of the biases.
      dropout: Rate of the dropout between them.
    """

    hidden_size: int | None = None
    activation_fn: Callable[[jax.Array], jax.Array] = nn.gelu
    kernel_init: Initializer = nn.initializers.xavier_uniform()
    bias_init: Initializer = nn.initializers.normal(stddev=1e-6)
    dropout: float = 0.0

    @nn.compact
    @typechecked
    def __call__(self, inputs: Float["*b d"]) -> Float["*b d"]:
        """Returns the outputs."""
        width = inputs.shape[-1]
        dense = functools.partial(nn.Dense, kernel_init=self.kernel_init, bias_init=self.bias_init)
        x = self.activation_fn(dense(self.hidden_size or 4 * width, name="dense_in")(inputs))
        if not is_static_zero(self.dropout):
            x = Dropout(self.dropout)(x)
        return dense(width, name="dense_out")(x)


def default_layer(layer: Callable[..., nn.Module]) -> Any:
    """Returns a dataclass field whose default is a new, unbound `layer()`."""
    # Without a parent: otherwise the module in whose call a block is made would own its layers.
    return dataclasses.field(default_factory=functools.partial(layer, parent=None))


class TransformerBlock(nn.Module):
    """Base class of blocks.

    Attributes:
      attention: Called with the tokens.
      mlp: Called with each token.
      attention_norm: The norm that goes with the attention.
      mlp_norm: The norm that goes with the MLP.
    """

    attention: nn.Module
    mlp: nn.Module = default_layer(TransformerMLP)
    attention_norm: nn.Module = default_layer(nn.LayerNorm)
    mlp_norm: nn.Module = default_layer(nn.LayerNorm)


class PreNormBlock(TransformerBlock):
    """Norms before attention and MLP: the stable arrangement."""

    @nn.compact
    @typechecked
    def __call__(self, tokens: Float["*b n d"]) -> Float["*b n d"]:
        """Returns the tokens, each having looked at the others."""
        x = tokens + self.attention(self.attention_norm(tokens))
        return x + self.mlp(self.mlp_norm(x))


class PostNormBlock(TransformerBlock):
    """Norms after attention and MLP; what is added up stays as it is in between."""

    @nn.compact
    @typechecked
    def __call__(self, tokens: Float["*b n d"]) -> Float["*b n d"]:
        """Returns the tokens, each having looked at the others."""
        x = tokens + self.attention(tokens)
        return self.mlp_norm(x + self.mlp(self.attention_norm(x)))


class ParallelAttentionBlock(TransformerBlock):
    """Attention and MLP read the same tokens and run side by side.

    Source: Dehghani et al., Scaling Vision Transformers to 22 Billion Parameters, 2023 (arXiv:2302.05442), section 2.
    """

    attention_norm: nn.Module = default_layer(nn.RMSNorm)

    @nn.compact
    @typechecked
    def __call__(self, tokens: Float["*b n d"]) -> Float["*b n d"]:
        """Returns the tokens, each having looked at the others."""
        return tokens + self.attention(self.attention_norm(tokens)) + self.mlp(self.mlp_norm(tokens))
