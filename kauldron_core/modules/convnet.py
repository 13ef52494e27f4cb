"""A small convolutional classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax

from kauldron_core import kontext
from kauldron_core.ktyping import Float, typechecked
from kauldron_core.modules.mode import Dropout, is_static_zero


class ConvNet(nn.Module):
    """Convolutions that halve the image each time, the mean over what is left, and a linear layer.

    Attributes:
      features: Channels of each convolution.
      num_classes: Width of the output; 0 returns the pooled features.
      kernel_size: Height and width of the kernels.
      activation: Applied after each convolution.
      dropout: Rate of the dropout before the linear layer.
      image: Where the images are found in the context.
    """

    features: Sequence[int]
    num_classes: int
    kernel_size: int = 3
    activation: Callable[[jax.Array], jax.Array] = nn.relu
    dropout: float = 0.0

    image: kontext.Key = kontext.REQUIRED

    @nn.compact
    @typechecked
    def __call__(self, image: Float["*b h w c"]) -> Float["*b n"]:
        """Returns the logits (or the features)."""
        x = image
        for i, width in enumerate(self.features):
            x = nn.Conv(width, (self.kernel_size, self.kernel_size), strides=2, name=f"conv_{i}")(x)
            x = self.activation(x)
        x = x.mean(axis=(-3, -2))
        if not is_static_zero(self.dropout):
            x = Dropout(self.dropout)(x)
        return nn.Dense(self.num_classes, name="classifier")(x) if self.num_classes else x
