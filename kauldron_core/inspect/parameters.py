"""The parameters of a model, one row each."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from kauldron_core import kontext
from kauldron_core.inspect.batch_stats import statistics
from kauldron_core.inspect.specs import dtype_text
from kauldron_core.inspect.table import Table


def get_param_overview(params: Any) -> Table:
    """Returns path, shape, dtype, size, mean and standard deviation of each parameter, and the total.

    Args:
      params: Parameters, a `TrainState`, a `Trainer` (whose parameters are not made: it shows shapes), or shapes of
        any of these.
    """
    params = _params_of(params)
    leaves = kontext.flatten_with_path(params)
    rows = tuple(_row(name, leaf) for name, leaf in leaves.items())
    count = sum(math.prod(leaf.shape) for leaf in leaves.values())
    size = sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in leaves.values())
    return Table(
        ("Path", "Shape", "Dtype", "Size", "Mean", "StdDev"),
        rows,
        title=f"{count:,} parameters, {size / 2**20:,.3g} MiB",
    )


def _params_of(source: Any) -> Any:
    source = getattr(source, "state_specs", source)
    return getattr(source, "params", source)


def _row(name: str, leaf: Any) -> tuple[Any, ...]:
    is_shape = isinstance(leaf, jax.ShapeDtypeStruct)
    numbers = None if is_shape else statistics(jax.device_get(leaf))
    mean, deviation = (None, None) if numbers is None else numbers[2:4]
    return name, str(tuple(leaf.shape)), dtype_text(leaf.dtype), math.prod(leaf.shape), mean, deviation
