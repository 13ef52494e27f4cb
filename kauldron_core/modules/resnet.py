"""Residual networks.

Source: He et al., Identity Mappings in Deep Residual Networks, 2016 (arXiv:1603.05027), figure 4 (e): normalisation
and activation come before each convolution, and nothing on the shortcut.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import flax.linen as nn
import jax

from kauldron_core import kontext
from kauldron_core.ktyping import Float, typechecked
from kauldron_core.modules.mode import train_property

# Source: Wu and He, Group Normalization, 2018 (arXiv:1803.08494), table 3.
_GROUP_SIZE = 16


class ResNetBlock(nn.Module):
    """Two convolutions and a shortcut around them.

    Attributes:
      features: Channels.
      strides: How much smaller the image becomes.
      norm: Returns a normalisation layer.
      activation: Applied before each convolution.
    """

    features: int
    norm: Callable[..., nn.Module]
    strides: int = 1
    activation: Callable[[jax.Array], jax.Array] = nn.relu

    @nn.compact
    def __call__(self, x: Float["*b h w c"]) -> jax.Array:
        """Returns images of `features` channels."""
        y = self.activation(self.norm(name="norm_0")(x))
        shortcut = x
        if self.strides != 1 or x.shape[-1] != self.features:
            shortcut = nn.Conv(self.features, (1, 1), self.strides, use_bias=False, name="shortcut")(y)
        y = nn.Conv(self.features, (3, 3), self.strides, use_bias=False, name="conv_0")(y)
        y = self.activation(self.norm(name="norm_1")(y))
        return shortcut + nn.Conv(self.features, (3, 3), use_bias=False, name="conv_1")(y)


class ResNet(nn.Module):
    """Stages of residual blocks; each stage but the first halves the image. A linear layer reads the mean.

    `ResNet(stages=(3, 3, 3), width=16, num_classes=10)` is ResNet-20 for images of 32 by 32 pixels.

    Attributes:
      stages: Blocks of each stage.
      num_classes: Width of the output; 0 returns the pooled features.
      width: Channels of the first stage; each further one has twice as many.
      norm: Batch statistics (running averages in evaluation), or groups of channels, which depend on one example only.
      stem: What comes first: a convolution, or, for large images, one that halves followed by a pooling that halves.
      activation: Applied before each convolution.
      image: Where the images are found in the context.
    """

    stages: Sequence[int]
    num_classes: int
    width: int = 64
    norm: Literal["batch", "group"] = "batch"
    stem: Literal["small", "large"] = "small"
    activation: Callable[[jax.Array], jax.Array] = nn.relu

    image: kontext.Key = kontext.REQUIRED

    is_training = train_property()

    @nn.compact
    @typechecked
    def __call__(self, image: Float["*b h w c"]) -> Float["*b n"]:
        """Returns the logits (or the features)."""
        norm = self._norm()
        x = self._stem(image)
        for i, num_blocks in enumerate(self.stages):
            for j in range(num_blocks):
                strides = 2 if i > 0 and j == 0 else 1
                name = f"stage_{i}_block_{j}"
                x = ResNetBlock(self.width * 2**i, norm, strides, self.activation, name=name)(x)
        x = self.activation(norm(name="norm")(x)).mean(axis=(-3, -2))
        return nn.Dense(self.num_classes, name="classifier")(x) if self.num_classes else x

    def _stem(self, image: jax.Array) -> jax.Array:
        if self.stem == "small":
            return nn.Conv(self.width, (3, 3), use_bias=False, name="stem")(image)
        x = nn.Conv(self.width, (7, 7), strides=2, use_bias=False, name="stem")(image)
        return nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")

    def _norm(self) -> Callable[..., nn.Module]:
        if self.norm == "batch":
            return functools.partial(nn.BatchNorm, use_running_average=not self.is_training, momentum=0.9)
        return functools.partial(nn.GroupNorm, num_groups=None, group_size=math.gcd(self.width, _GROUP_SIZE))
