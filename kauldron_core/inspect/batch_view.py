"""A batch to look at: pictures where it holds images, values where it holds little, statistics of everything."""

from __future__ import annotations

import dataclasses
import html
from typing import Any

import jax
import numpy as np

from kauldron_core import kontext
from kauldron_core.inspect.batch_stats import get_batch_stats
from kauldron_core.inspect.table import Table
from kauldron_core.summaries import to_pictures
from kauldron_core.summaries.png import html_image

_MAX_VALUES = 8
_MIN_SIDE = 4
_CELL = "padding:4px;text-align:left;vertical-align:top;font:12px monospace"


@dataclasses.dataclass(frozen=True)
class BatchView:
    """Some examples of a batch. In a notebook the last expression of a cell shows it; as text it is `stats`.

    Attributes:
      examples: Each one's values by name: a picture `uint8[h, w, 3]`, or text.
      stats: Statistics of the whole batch.
    """

    examples: tuple[dict[str, Any], ...]
    stats: Table

    def __repr__(self) -> str:
        return str(self.stats)

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for example in self.examples for name in example))
        head = "".join(f'<th style="{_CELL}">{html.escape(name)}</th>' for name in names)
        rows = "".join(
            "<tr>" + "".join(f'<td style="{_CELL}">{_html(example.get(name))}</td>' for name in names) + "</tr>"
            for example in self.examples
        )
        return f"<table><tr>{head}</tr>{rows}</table>{self.stats._repr_html_()}"


def plot_batch(batch: Any, *, num_examples: int = 5, vrange: tuple[float, float] | None = None) -> BatchView:
    """Returns the first examples of a batch as pictures and text, with the statistics of all.

    An array is taken for images if it is `b h w c` with one to four channels, or `b h w`, and holds uint8, booleans
    or floats. Arrays of more than 8 values an example that are no images are shown as statistics only.

    Args:
      batch: A batch, as a pipeline yields it.
      num_examples: How many examples to show.
      vrange: The values that become black and white. By default 0 and 255 for uint8; for floats 0 and 1, or the
        smallest and largest value of the array if some lie outside of that.
    """
    leaves = {name: np.asarray(leaf) for name, leaf in kontext.flatten_with_path(jax.device_get(batch)).items()}
    shown = {name: _shown(array[:num_examples], vrange) for name, array in leaves.items() if array.ndim}
    shown = {name: values for name, values in shown.items() if values is not None}
    count = min((len(values) for values in shown.values()), default=0)
    examples = tuple({name: values[i] for name, values in shown.items()} for i in range(count))
    return BatchView(examples, get_batch_stats(batch))


def _shown(array: np.ndarray, vrange: tuple[float, float] | None) -> Any:
    """Parts of each example to show, or None."""
    if _is_images(array):
        images = array if array.ndim == 4 else array[..., None]
        return to_pictures(images, vrange=vrange or _range_of(images))
    if array[:1].size <= _MAX_VALUES:
        return [_text(value) for value in array]
    return None


def _is_images(array: np.ndarray) -> bool:
    has_channels = array.ndim == 4 and array.shape[-1] <= 4
    sides = array.shape[1:3]
    is_color = array.dtype == np.uint8 or array.dtype == bool or np.issubdtype(array.dtype, np.floating)
    return is_color and (has_channels or array.ndim == 3) and min(sides, default=0) >= _MIN_SIDE


def _range_of(images: np.ndarray) -> tuple[float, float] | None:
    if not np.issubdtype(images.dtype, np.floating):
        return None
    finite = images[np.isfinite(images)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    return None if (low >= 0 and high <= 1) or low == high else (float(low), float(high))


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return np.array2string(np.asarray(value), precision=4, separator=", ") if np.ndim(value) else str(value)


def _html(value: Any) -> str:
    return html_image(value) if isinstance(value, np.ndarray) else html.escape(value or "")
