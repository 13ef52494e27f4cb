"""Pictures of a few examples: plain, as differences, with boxes, with masks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from kauldron_core import kontext
from kauldron_core.summaries import drawing
from kauldron_core.summaries.summary import Summary, rearrange


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowImages(Summary):
    """Some images, as `uint8[n, h, w, 3]`.

    Attributes:
      images: Shape `b h w c`, after `rearrange`.
      mask: Which examples count.
      num_images: How many are kept.
      in_vrange: The values that become black and white; by default 0 and 1, or 0 and 255 for uint8.
      cmap: Name of a matplotlib colour map, for images of one channel.
      rearrange: An einops pattern, such as `'b t h w c -> (b t) h w c'`.
      rearrange_kwargs: Sizes for it.
    """

    images: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    num_images: int = 5
    in_vrange: tuple[float, float] | None = None
    cmap: str | None = None
    rearrange: str | None = None
    rearrange_kwargs: Mapping[str, Any] | None = None

    @property
    def num(self) -> int:
        return self.num_images

    def get_state(self, images: Any, mask: Any = None) -> Any:
        return self.sample({"image": self._arranged(images)}, mask)

    def show(self, kept: Any) -> Any:
        return drawing.to_pictures(kept["image"], vrange=self.in_vrange, cmap=self.cmap)

    def _arranged(self, images: Any) -> Any:
        arranged = rearrange(jnp.asarray(images), self.rearrange, self.rearrange_kwargs)
        if arranged.ndim == 3:
            arranged = arranged[..., None]
        if arranged.ndim != 4 or arranged.shape[-1] > 4:
            name = type(self).__name__
            raise ValueError(f"{name}: images of shape {arranged.shape} are not 'b h w c'; rearrange them")
        return arranged


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowDifferenceImages(Summary):
    """Where two images differ: the mean over channels of the absolute difference, coloured.

    Attributes:
      images1: Shape `b h w c`, after `rearrange`.
      images2: Of the same shape.
      mask: Which examples count.
      num_images: How many are kept.
      vrange: The differences that get the first and the last colour.
      cmap: Name of a matplotlib colour map.
      rearrange: An einops pattern for both.
      rearrange_kwargs: Sizes for it.
    """

    images1: kontext.Key = kontext.REQUIRED
    images2: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    num_images: int = 5
    vrange: tuple[float, float] | None = None
    cmap: str = "gray"
    rearrange: str | None = None
    rearrange_kwargs: Mapping[str, Any] | None = None

    @property
    def num(self) -> int:
        return self.num_images

    def get_state(self, images1: Any, images2: Any, mask: Any = None) -> Any:
        first, second = (
            rearrange(jnp.asarray(images, jnp.float32), self.rearrange, self.rearrange_kwargs)
            for images in (images1, images2)
        )
        if first.shape != second.shape:
            raise ValueError(f"ShowDifferenceImages: shapes {first.shape} and {second.shape} differ")
        return self.sample({"image": jnp.abs(first - second).mean(axis=-1, keepdims=True)}, mask)

    def show(self, kept: Any) -> Any:
        return drawing.to_pictures(kept["image"], vrange=self.vrange, cmap=self.cmap)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowBoxes(ShowImages):
    """Some images with the outlines of boxes, one colour a box (or a label).

    Attributes:
      boxes: Shape `b k 4`: `ymin xmin ymax xmax` as shares of height and width. Empty boxes are padding.
      labels: Integers of shape `b k`; boxes of one label share a colour.
    """

    boxes: kontext.Key = kontext.REQUIRED
    labels: kontext.Key | None = None

    # What `get_state` takes is what the keys name, and this summary has more of them.
    def get_state(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, images: Any, boxes: Any, labels: Any = None, mask: Any = None
    ) -> Any:
        boxes = jnp.asarray(boxes)
        labels = jnp.broadcast_to(jnp.arange(boxes.shape[1]), boxes.shape[:2]) if labels is None else labels
        return self.sample({"image": self._arranged(images), "boxes": boxes, "labels": jnp.asarray(labels)}, mask)

    def show(self, kept: Any) -> Any:
        pictures = super().show(kept)
        colors = drawing.palette(int(kept["labels"].max(initial=0)) + 1)
        drawn = [
            drawing.draw_boxes(picture[None], boxes[None], colors[labels])[0]
            for picture, boxes, labels in zip(pictures, kept["boxes"], kept["labels"], strict=True)
        ]
        return np.asarray(drawn).reshape(pictures.shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowSegmentations(Summary):
    """Some segmentations, one colour a segment, over their images if there are any.

    Attributes:
      segmentations: Integers of shape `b h w` (or `b h w 1`), or weights of shape `b h w k` with k above 1.
      images: Images to lay them over, shape `b h w c`.
      mask: Which examples count.
      num_images: How many are kept.
      num_segments: How many colours integers need; by default as many as the kept ones hold.
      opacity: Of the segments over the images.
    """

    segmentations: kontext.Key = kontext.REQUIRED
    images: kontext.Key | None = None
    mask: kontext.Key | None = None
    num_images: int = 5
    num_segments: int | None = None
    opacity: float = 0.6

    @property
    def num(self) -> int:
        return self.num_images

    def get_state(self, segmentations: Any, images: Any = None, mask: Any = None) -> Any:
        kept = {"segments": jnp.asarray(segmentations)}
        if images is not None:
            kept["image"] = jnp.asarray(images)
        return self.sample(kept, mask)

    def show(self, kept: Any) -> Any:
        segments = kept["segments"]
        if np.issubdtype(segments.dtype, np.integer):
            labels = segments[..., 0] if segments.ndim == 4 else segments
            count = self.num_segments or int(labels.max(initial=0)) + 1
            segments: Any = drawing.one_hot(labels, count)
        colors = drawing.palette(segments.shape[-1])
        if "image" not in kept:
            below: Any = np.zeros((*segments.shape[:3], 3), np.uint8)
            return drawing.draw_masks(below, segments, colors, opacity=1.0)
        return drawing.draw_masks(drawing.to_pictures(kept["image"]), segments, colors, opacity=self.opacity)
