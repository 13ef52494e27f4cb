"""Embeddings of positions: each is called with a shape and says which of its axes are positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core.ktyping import Float, typechecked

Axes: TypeAlias = int | Sequence[int]
Initializer: TypeAlias = Callable[..., jax.Array]


class LearnedEmbedding(nn.Module):
    """One learned vector a position.

    Attributes:
      dtype: Of the embedding.
      emb_init: Its initial value.
      emb_name: Name of the parameter.
    """

    dtype: Any = jnp.float32
    emb_init: Initializer = nn.initializers.normal(stddev=0.02)
    emb_name: str = "embeddings"

    @nn.compact
    def __call__(self, shape: Sequence[int], *, axis: Axes) -> jax.Array:
        """Returns an embedding that can be added to an array of `shape`: of size 1 on axes that are no positions."""
        axes = {a % len(shape) for a in _as_tuple(axis)} | {len(shape) - 1}
        sizes = [size if i in axes else 1 for i, size in enumerate(shape)]
        embedding = self.param(self.emb_name, self.emb_init, tuple(shape[i] for i in sorted(axes)), self.dtype)
        return embedding.reshape(sizes)


class ZeroEmbedding(nn.Module):
    """No position at all.

    Attributes:
      dtype: Of the zeros.
    """

    dtype: Any = jnp.float32

    def __call__(self, shape: Sequence[int], *, axis: Axes) -> jax.Array:
        """Returns zeros."""
        return jnp.zeros(shape, self.dtype)


class FourierEmbedding(nn.Module):
    """Sines and cosines of the coordinates, projected to the width of the array.

    Attributes:
      num_fourier_bases: Frequencies of each coordinate: 1, 2, 4, ... periods over the length of the axis.
    """

    num_fourier_bases: int

    @nn.compact
    def __call__(self, shape: Sequence[int], *, axis: Axes) -> jax.Array:
        """Returns an embedding that can be added to an array of `shape`: of size 1 on axes that are no positions."""
        axes = sorted({a % len(shape) for a in _as_tuple(axis)})
        lines = [np.linspace(-np.pi, np.pi, shape[a]) for a in axes]
        grid = jnp.asarray(np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1), jnp.float32)
        embedding = nn.Dense(shape[-1], name="dense_pe")(convert_to_fourier_features(grid, self.num_fourier_bases))
        sizes = [size if i in axes or i == len(shape) - 1 else 1 for i, size in enumerate(shape)]
        return embedding.reshape(sizes)


class AddEmbedding(nn.Module):
    """Adds an embedding of positions.

    Attributes:
      emb: The embedding.
      axis: Which axes are positions.
    """

    emb: nn.Module
    axis: Axes = -2

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Returns the sum."""
        return inputs + self.emb(inputs.shape, axis=self.axis)


@typechecked
def convert_to_fourier_features(inputs: Float["*b d"], basis_degree: int) -> Float["*b f"]:
    """Returns sines, then cosines, of the inputs times 1, 2, 4 and so on.

    Args:
      inputs: Coordinates, in [-pi, pi].
      basis_degree: Number of frequencies.
    """
    angles = inputs[..., None, :] * 2.0 ** jnp.arange(basis_degree)[:, None]
    angles = angles.reshape(*inputs.shape[:-1], -1)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def _as_tuple(axis: Axes) -> tuple[int, ...]:
    return (axis,) if isinstance(axis, int) else tuple(axis)
