"""Einops as layers, so that a config can put them between others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

import einops
import flax.linen as nn
import jax


class Rearrange(nn.Module):
    """Splits, merges and moves axes: `Rearrange("b h w c -> b (h w) c")`.

    Attributes:
      pattern: As in `einops.rearrange`.
      axes_lengths: Sizes that the pattern leaves open.
    """

    pattern: str
    axes_lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Returns the rearranged array."""
        return einops.rearrange(inputs, self.pattern, **self.axes_lengths)


class Reduce(nn.Module):
    """Takes the mean, the maximum and so on over axes: `Reduce("b h w c -> b c", "mean")`.

    Attributes:
      pattern: As in `einops.reduce`.
      reduction: What to take.
      axes_lengths: Sizes that the pattern leaves open.
    """

    pattern: str
    reduction: Literal["min", "max", "sum", "mean", "prod"]
    axes_lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Returns the reduced array."""
        return einops.reduce(inputs, self.pattern, self.reduction, **self.axes_lengths)
