"""Transforms of numbers and shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import einops
import numpy as np

from kauldron_core.data.transforms.base import ElementWiseTransform
from kauldron_core.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pointwise(ElementWiseTransform):
    """Base of transforms that take a batch as they take an example: the leading dimension means nothing to them."""

    def map_batch(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        return self.map(batch)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cast(_Pointwise):
    """Changes the dtype."""

    dtype: Any

    def map_element(self, value: Any) -> np.ndarray:
        return np.asarray(value).astype(self.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueRange(_Pointwise):
    """Maps values linearly from one range to another.

    Attributes:
      vrange: Lowest and highest value afterwards.
      in_vrange: Lowest and highest value before.
      dtype: A float type, of the calculation and of the result.
      clip_values: Whether values outside are moved to the border.
    """

    vrange: tuple[float, float]
    in_vrange: tuple[float, float] = (0.0, 255.0)
    dtype: Any = np.float32
    clip_values: bool = True

    def __post_init__(self):
        if self.in_vrange[0] == self.in_vrange[1]:
            raise ConfigError(f"ValueRange: in_vrange={self.in_vrange} is one point.")

    def map_element(self, value: Any) -> np.ndarray:
        (in_low, in_high), (low, high) = self.in_vrange, self.vrange
        value = (np.asarray(value, self.dtype) - in_low) / (in_high - in_low) * (high - low) + low
        if self.clip_values:
            value = np.clip(value, min(low, high), max(low, high))
        return np.asarray(value, self.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneHot(_Pointwise):
    """Turns class numbers into vectors with a one, in a new last dimension.

    Attributes:
      num_classes: Length of the vectors.
      dtype: Of the result.
    """

    num_classes: int
    dtype: Any = np.float32

    def map_element(self, value: Any) -> np.ndarray:
        classes = np.asarray(value)
        if classes.size and not (classes.min() >= 0 and classes.max() < self.num_classes):
            raise ValueError(
                f"classes {classes.min()} ... {classes.max()} are not all in 0 ... {self.num_classes - 1}."
            )
        return (classes[..., None] == np.arange(self.num_classes)).astype(self.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gather(ElementWiseTransform):
    """Takes some entries of one dimension.

    Attributes:
      axis: The dimension.
      indices: What to take of it, in this order.
    """

    axis: int
    indices: tuple[int, ...]

    def map_element(self, value: Any) -> np.ndarray:
        return np.take(value, self.indices, axis=self.axis)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rearrange(ElementWiseTransform):
    """Permutes, splits and joins dimensions with `einops.rearrange`.

    Attributes:
      pattern: Of one example, for instance `h w c -> (h w c)`.
      axes_lengths: Sizes that the pattern leaves open.
    """

    pattern: str
    axes_lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def map_element(self, value: Any) -> np.ndarray:
        return einops.rearrange(np.asarray(value), self.pattern, **self.axes_lengths)

    def map_batch(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        before, arrow, after = self.pattern.partition("->")
        pattern = f"batch_of_examples {before} {arrow} batch_of_examples {after}"
        return self._apply(batch, lambda value: einops.rearrange(value, pattern, **self.axes_lengths))
