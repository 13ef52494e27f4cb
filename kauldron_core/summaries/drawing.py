"""Arrays as pictures: value ranges, colours, boxes and grids. NumPy only; a picture is `uint8[h, w, 3]`."""

from __future__ import annotations

import colorsys
import math
from typing import Any, cast

import numpy as np

from kauldron_core.ktyping import Array, Float, Int, Num, UInt8, typechecked


@typechecked
def to_pictures(
    images: Array["n h w 1|2|3|4"], *, vrange: tuple[float, float] | None = None, cmap: str | None = None
) -> UInt8["n h w 3"]:
    """Returns images as RGB.

    Args:
      images: uint8, booleans, or floats in [0, 1] unless `vrange` says otherwise. One channel is grey or coloured by
        `cmap`, two become red and green, of four the last (alpha) is laid over white.
      vrange: The values that become black and white.
      cmap: Name of a matplotlib colour map, for images of one channel.
    """
    scaled: Any = _to_unit(images, vrange)
    channels = scaled.shape[-1]
    if channels == 1 and cmap is not None:
        import matplotlib  # Only for colour maps.

        scaled = matplotlib.colormaps[cmap](scaled[..., 0])[..., :3]
    elif channels == 1:
        scaled = np.repeat(scaled, 3, axis=-1)
    elif channels == 2:
        scaled = np.concatenate([scaled, np.zeros_like(scaled[..., :1])], axis=-1)
    elif channels == 4:
        alpha = scaled[..., 3:]
        scaled = scaled[..., :3] * alpha + 1 - alpha
    pictures: Any = np.round(scaled * 255).astype(np.uint8)
    return pictures


def grid(pictures: Any, *, columns: int | None = None, gap: int = 2) -> Any:
    """Returns pictures `[n, h, w, 3]` side by side as one, `[rows*h, columns*w, 3]` with white gaps of `gap` pixels."""
    count, height, width, channels = pictures.shape
    columns = columns or math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    canvas = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap, channels), 255, np.uint8)
    for index, picture in enumerate(pictures):
        top, left = (index // columns) * (height + gap), (index % columns) * (width + gap)
        canvas[top : top + height, left : left + width] = picture
    return canvas


def palette(count: int) -> Any:
    """Returns `count` colours that are easy to tell apart, `float[count, 3]` in [0, 1]."""
    golden = (math.sqrt(5) - 1) / 2  # Hues a golden section apart never come close to each other.
    return np.asarray([colorsys.hsv_to_rgb((index * golden) % 1, 0.75, 0.95) for index in range(count)]).reshape(-1, 3)


@typechecked
def draw_masks(
    pictures: UInt8["n h w 3"], masks: Num["n h w k"], colors: Float["k 3"], *, opacity: float = 0.6
) -> UInt8["n h w 3"]:
    """Returns the pictures under coloured masks; the weights in [0, 1] of several masks on one pixel mix."""
    weight: Any = np.clip(masks.astype(np.float64), 0, 1)
    total = np.clip(weight.sum(axis=-1, keepdims=True), 1e-9, None)
    color = (weight / total) @ colors * 255
    cover = np.clip(weight.max(axis=-1, keepdims=True), 0, 1) * opacity
    covered = pictures * (1 - cover) + color * cover
    return cast(Any, np.round(covered)).astype(np.uint8)


@typechecked
def draw_boxes(pictures: UInt8["n h w 3"], boxes: Num["n k 4"], colors: Float["k 3"]) -> UInt8["n h w 3"]:
    """Returns the pictures with the outlines of boxes.

    Args:
      pictures: What is below.
      boxes: `ymin xmin ymax xmax` as shares of height and width. Empty boxes and those with NaN are left out.
      colors: Of each box.
    """
    drawn = cast(Any, pictures.copy())
    size = np.asarray(pictures.shape[1:3] * 2) - 1
    for picture, of_picture in zip(drawn, boxes, strict=True):
        for box, color in zip(of_picture, colors, strict=True):
            if np.isfinite(box).all() and box[2] > box[0] and box[3] > box[1]:
                _outline(picture, *np.round(np.clip(box, 0, 1) * size).astype(int), color=color)
    return drawn


def _outline(picture: Any, top: int, left: int, bottom: int, right: int, *, color: Any) -> None:
    pixel = np.round(np.asarray(color) * 255).astype(np.uint8)
    picture[[top, bottom], left : right + 1] = pixel
    picture[top : bottom + 1, [left, right]] = pixel


@typechecked
def one_hot(labels: Int["*b"], count: int) -> Float["*b {count}"]:
    """Returns integer labels as weights of `count` classes; labels outside have none."""
    weights: Any = labels[..., None] == np.arange(count)
    return weights.astype(np.float64)


def _to_unit(images: Any, vrange: tuple[float, float] | None) -> Any:
    if vrange is None:
        vrange = (0.0, 255.0) if images.dtype == np.uint8 else (0.0, 1.0)
    low, high = vrange
    scaled = (images.astype(np.float64) - low) / (high - low)
    return np.clip(np.nan_to_num(scaled, nan=0.0), 0.0, 1.0)
