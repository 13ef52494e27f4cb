"""What the numbers in a batch are like: the first thing to look at when a loss is odd."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from kauldron_core import kontext
from kauldron_core.inspect.table import Table

_COLUMNS = ("Name", "Dtype", "Shape", "Min", "Max", "Mean", "StdDev", "NonFinite")


def get_batch_stats(batch: Any) -> Table:
    """Returns one row for each array in a batch: dtype, shape, smallest and largest value, mean, standard deviation.

    Statistics are in float64 and leave out values that are not finite, which are counted.
    """
    leaves = kontext.flatten_with_path(jax.device_get(batch), prefix="batch")
    return Table(_COLUMNS, tuple(_row(name, np.asarray(leaf)) for name, leaf in leaves.items()))


def statistics(array: Any) -> tuple[float, float, float, float, int] | None:
    """Returns minimum, maximum, mean and standard deviation of the finite values, and the number of the others.

    None where there are no numbers.
    """
    array = np.asarray(array)
    try:
        values = array.astype(np.float64)
    except (TypeError, ValueError):
        return None
    finite = values[np.isfinite(values)]
    if not finite.size:
        return None
    return (
        float(finite.min()),
        float(finite.max()),
        float(finite.mean()),
        float(finite.std()),
        values.size - finite.size,
    )


def _row(name: str, array: np.ndarray) -> tuple[Any, ...]:
    numbers = statistics(array) if array.dtype.kind not in "OSUV" or array.dtype.itemsize == 2 else None
    return name, str(array.dtype), str(array.shape), *(numbers or (None,) * 5)
