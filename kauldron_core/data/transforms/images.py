"""Transforms of images, `[... h w c]`, and of other arrays that are cropped like images."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal

import numpy as np

from kauldron_core.data.transforms.base import ElementWiseRandomTransform, ElementWiseTransform
from kauldron_core.errors import ConfigError

ResizeMethod = Literal["nearest", "linear", "bilinear", "cubic", "bicubic", "lanczos3"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resize(ElementWiseTransform):
    """Resizes an image; the numbers are those of `jax.image.resize`, without a device.

    Attributes:
      size: Height and width afterwards. Exactly one of `size`, `min_size` and `max_size` is set.
      min_size: Length of the shorter edge afterwards; the other one follows.
      max_size: Length of the longer edge afterwards.
      method: None takes the nearest pixel for integers and `linear` for floats.
      antialias: Whether each pixel of a smaller image is an average over all that it covers.
    """

    size: tuple[int, int] | None = None
    min_size: int | None = None
    max_size: int | None = None
    method: ResizeMethod | None = None
    antialias: bool = True

    def __post_init__(self):
        given = [name for name in ("size", "min_size", "max_size") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ConfigError(f"Resize takes exactly one of size, min_size and max_size, not {given or 'none'}.")

    def map_element(self, value: Any) -> np.ndarray:
        image = np.asarray(value)
        if image.ndim < 3:
            raise ValueError(f"an image has shape [... h w c], not {image.shape}.")
        method = self.method or ("linear" if image.dtype.kind == "f" else "nearest")
        height, width = self._new_size(*image.shape[-3:-1])
        if method == "nearest":
            return image[..., _nearest(image.shape[-3], height), :, :][..., _nearest(image.shape[-2], width), :]
        rows = _weights(image.shape[-3], height, method, self.antialias)
        columns = _weights(image.shape[-2], width, method, self.antialias)
        pixels = image if image.dtype.kind == "f" else image.astype(np.float32)
        resized = np.einsum("...hwc,Hh,Ww->...HWc", pixels, rows, columns, optimize=True)
        return _as_dtype(resized, image.dtype)

    def _new_size(self, height: int, width: int) -> tuple[int, int]:
        if self.size is not None:
            return self.size
        if self.min_size is not None:
            ratio = self.min_size / min(height, width)
        else:
            ratio = (self.max_size or 0) / max(height, width)
        return max(round(height * ratio), 1), max(round(width * ratio), 1)


def _nearest(before: int, after: int) -> np.ndarray:
    return np.minimum(((np.arange(after) + 0.5) * before / after).astype(int), before - 1)


@functools.lru_cache(maxsize=256)
def _weights(before: int, after: int, method: str, antialias: bool) -> np.ndarray:
    """Returns the matrix that resamples a line of `before` pixels to `after`."""
    scale = before / after
    kernel_scale = max(scale, 1.0) if antialias else 1.0
    centers = (np.arange(after) + 0.5) * scale - 0.5
    distance = np.abs(centers[:, None] - np.arange(before)[None, :]) / kernel_scale
    weights = _KERNELS[method](distance)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(0, 1 - x)


def _keys_cubic(x: np.ndarray) -> np.ndarray:
    """Source: R. Keys, Cubic convolution interpolation for digital image processing, 1981, equation 15 (a = -1/2)."""
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _lanczos3(x: np.ndarray) -> np.ndarray:
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)


_KERNELS = {
    "linear": _triangle,
    "bilinear": _triangle,
    "cubic": _keys_cubic,
    "bicubic": _keys_cubic,
    "lanczos3": _lanczos3,
}


def _as_dtype(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.clip(np.round(values), limits.min, limits.max)
    return values.astype(dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CenterCrop(ElementWiseTransform):
    """Cuts out the middle.

    Attributes:
      shape: Shape afterwards; None keeps a dimension.
    """

    shape: tuple[int | None, ...]

    def map_element(self, value: Any) -> np.ndarray:
        array = np.asarray(value)
        target = _crop_shape(array, self.shape)
        return _crop(array, [(size - cut) // 2 for size, cut in zip(array.shape, target, strict=True)], target)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomCrop(ElementWiseRandomTransform):
    """Cuts out a piece anywhere; at the same place in all entries, which must be of one size.

    Attributes:
      shape: Shape afterwards; None keeps a dimension.
    """

    shape: tuple[int | None, ...]

    def random_map_element(self, value: Any, rng: np.random.Generator) -> np.ndarray:
        array = np.asarray(value)
        target = _crop_shape(array, self.shape)
        starts = [
            0 if wanted is None else int(rng.integers(0, size - cut + 1))
            for size, cut, wanted in zip(array.shape, target, self.shape, strict=True)
        ]
        return _crop(array, starts, target)

    def random_map(self, element: Any, rng: np.random.Generator) -> dict[str, Any]:
        shapes = {}
        for read, _ in self._pairs():
            if read in element and len(np.shape(element[read])) == len(self.shape):
                cut = zip(np.shape(element[read]), self.shape, strict=True)
                shapes[read] = [size for size, wanted in cut if wanted is not None]
        if any(shape != next(iter(shapes.values())) for shape in shapes.values()):
            raise ValueError(f"entries of different sizes cannot be cropped alike: {shapes}.")
        return super().random_map(element, rng)


def _crop_shape(array: np.ndarray, shape: tuple[int | None, ...]) -> list[int]:
    if len(shape) != array.ndim:
        raise ValueError(f"a crop of {shape} needs {len(shape)} dimensions, not {array.shape}.")
    target = [size if wanted is None else wanted for size, wanted in zip(array.shape, shape, strict=True)]
    if any(cut > size for size, cut in zip(array.shape, target, strict=True)):
        raise ValueError(f"a crop of {shape} does not fit into {array.shape}.")
    return target


def _crop(array: np.ndarray, starts: list[int], shape: list[int]) -> np.ndarray:
    return array[tuple(slice(start, start + size) for start, size in zip(starts, shape, strict=True))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomFlipLeftRight(ElementWiseRandomTransform):
    """Mirrors an image with probability one half."""

    def random_map_element(self, value: Any, rng: np.random.Generator) -> np.ndarray:
        image = np.asarray(value)
        return np.flip(image, axis=-2) if rng.random() < 0.5 else image
