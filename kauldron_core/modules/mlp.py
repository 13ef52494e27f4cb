"""A multi-layer perceptron, the smallest model that is good for something."""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax

from kauldron_core import kontext
from kauldron_core.modules.mode import Dropout, is_static_zero


class MLP(nn.Module):
    """Dense layers with an activation between them. Everything after the batch axis is flattened first.

    Attributes:
      hidden: Width of the hidden layer, or of each of several; `()` gives a linear model.
      features: Width of the output.
      activation: Applied after each hidden layer.
      dropout: Rate of the dropout after each hidden layer.
      x: Where the input is found in the context.
    """

    hidden: int | tuple[int, ...]
    features: int
    activation: Callable[[jax.Array], jax.Array] = nn.relu
    dropout: float = 0.0

    x: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the outputs, `[batch, features]`."""
        widths = (self.hidden,) if isinstance(self.hidden, int) else tuple(self.hidden)
        x = x.reshape(x.shape[0], -1)
        for width in widths:
            x = self.activation(nn.Dense(width)(x))
            if not is_static_zero(self.dropout):
                x = Dropout(self.dropout)(x)
        return nn.Dense(self.features)(x)
