"""Summaries: what to look at. Metrics that keep the first or a random k examples exactly, and draw them."""

from kauldron_core.summaries.drawing import draw_boxes, draw_masks, grid, palette, to_pictures
from kauldron_core.summaries.histogram import Histogram, HistogramSummary
from kauldron_core.summaries.images import ShowBoxes, ShowDifferenceImages, ShowImages, ShowSegmentations
from kauldron_core.summaries.samples import SampleState
from kauldron_core.summaries.summary import Summary
from kauldron_core.summaries.texts import ShowTexts, decode_utf8

__all__ = [
    "Histogram",
    "HistogramSummary",
    "SampleState",
    "ShowBoxes",
    "ShowDifferenceImages",
    "ShowImages",
    "ShowSegmentations",
    "ShowTexts",
    "Summary",
    "decode_utf8",
    "draw_boxes",
    "draw_masks",
    "grid",
    "palette",
    "to_pictures",
]
