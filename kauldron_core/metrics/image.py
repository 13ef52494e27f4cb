"""How alike two images are."""

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
from kauldron_core.metrics.metric import Metric
from kauldron_core.metrics.shapes import as_float, difference


@dataclasses.dataclass(frozen=True, kw_only=True)
class Psnr(Metric):
    """Peak signal-to-noise ratio in decibel, of each image and then averaged. Equal images give infinity.

    Attributes:
      pred: Images `*b h w c`.
      target: The same shape.
      mask: Booleans or weights for the leading dimensions `*b`.
      in_vrange: Smallest and largest value that a pixel can have.
      clip: Largest ratio that an image can count with.
    """

    better = "higher"

    pred: kontext.Key = kontext.REQUIRED
    target: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    in_vrange: tuple[float, float] = (0.0, 1.0)
    clip: float | None = None

    @flax.struct.dataclass
    class State(AverageState["Psnr"]): ...

    @typechecked
    def get_state(self, pred: Num["*b h w c"], target: Num["*b h w c"], mask: Any = None) -> AverageState:
        error = jnp.square(difference(pred, target)).mean(axis=(-3, -2, -1))
        values = 20 * jnp.log10(self.in_vrange[1] - self.in_vrange[0]) - 10 * jnp.log10(error)
        return self.State.from_values(values if self.clip is None else jnp.minimum(values, self.clip), mask)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ssim(Metric):
    """Structural similarity, the mean over windows and channels of each image and then over images.

    Source: Wang, Bovik, Sheikh and Simoncelli, Image Quality Assessment: From Error Visibility to Structural
    Similarity (2004), equation 13 and section III-C for the window.

    Attributes:
      pred: Images `*b h w c`, at least as large as the window.
      target: The same shape.
      mask: Booleans or weights for the leading dimensions `*b`.
      in_vrange: Smallest and largest value that a pixel can have.
      filter_size: Side of the Gaussian window.
      filter_sigma: Its standard deviation in pixels.
      k1: Factor of the range that steadies the comparison of means.
      k2: Factor of the range that steadies the comparison of spreads.
    """

    better = "higher"

    pred: kontext.Key = kontext.REQUIRED
    target: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    in_vrange: tuple[float, float] = (0.0, 1.0)
    filter_size: int = 11
    filter_sigma: float = 1.5
    k1: float = 0.01
    k2: float = 0.03

    @flax.struct.dataclass
    class State(AverageState["Ssim"]): ...

    @typechecked
    def get_state(self, pred: Num["*b h w c"], target: Num["*b h w c"], mask: Any = None) -> AverageState:
        if min(jnp.shape(pred)[-3:-1]) < self.filter_size:
            raise ValueError(
                f"Ssim: images of shape {jnp.shape(pred)} are smaller than the window ({self.filter_size})"
            )
        # Differences of squares lose digits; the mean of the range is the best place to stand.
        center = sum(self.in_vrange) / 2
        return self.State.from_values(
            self._similarity(as_float(pred) - center, as_float(target) - center, center), mask
        )

    def _similarity(self, left: jax.Array, right: jax.Array, center: float) -> jax.Array:
        span = self.in_vrange[1] - self.in_vrange[0]
        c1, c2 = (self.k1 * span) ** 2, (self.k2 * span) ** 2
        mean_left, mean_right = self._blur(left), self._blur(right)
        var_left, var_right = self._blur(left**2) - mean_left**2, self._blur(right**2) - mean_right**2
        covariance = self._blur(left * right) - mean_left * mean_right
        mean_left, mean_right = mean_left + center - self.in_vrange[0], mean_right + center - self.in_vrange[0]
        luminance = (2 * mean_left * mean_right + c1) / (mean_left**2 + mean_right**2 + c1)
        structure = (2 * covariance + c2) / (var_left + var_right + c2)
        return (luminance * structure).mean(axis=(-3, -2, -1))

    def _blur(self, images: jax.Array) -> jax.Array:
        """Returns the Gaussian mean around each pixel whose window lies inside the image."""
        offsets = np.arange(self.filter_size) - (self.filter_size - 1) / 2
        window = np.exp(-0.5 * (offsets / self.filter_sigma) ** 2)
        window = jnp.asarray(window / window.sum(), images.dtype)
        height, width, channels = images.shape[-3:]
        stack = jnp.moveaxis(images.reshape(-1, height, width, channels), -1, 1).reshape(-1, 1, height, width)
        for kernel in (window[None, None, :, None], window[None, None, None, :]):
            stack = jax.lax.conv(stack, kernel, (1, 1), "VALID", precision=jax.lax.Precision.HIGHEST)
        stack = stack.reshape(-1, channels, *stack.shape[-2:])
        return jnp.moveaxis(stack, 1, -1).reshape(*images.shape[:-3], *stack.shape[-2:], channels)
