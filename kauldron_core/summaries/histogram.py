"""How the values of a tensor are distributed, from a sample of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from kauldron_core import kontext
from kauldron_core.metrics import align_mask
from kauldron_core.summaries.samples import Keep
from kauldron_core.summaries.summary import Summary


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Counts of values in bins of equal width.

    Attributes:
      counts: Shape `num_buckets`.
      edges: Shape `num_buckets + 1`.
    """

    counts: Any
    edges: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class HistogramSummary(Summary):
    """A histogram whose range need not be known before: it is made from values that are kept.

    With `num_values` values or fewer it is exact; with more it shows a random choice of them. `metrics.Histogram`
    counts every value in a range that is given.

    Attributes:
      tensor: Any shape. Values that are not finite are left out.
      mask: For its leading dimensions.
      num_buckets: How many bins.
      num_values: How many values are kept.
    """

    tensor: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    num_buckets: int = 30
    num_values: int = 10_000
    keep: Keep = "random"

    @property
    def num(self) -> int:
        return self.num_values

    def get_state(self, tensor: Any, mask: Any = None) -> Any:
        values = jnp.asarray(tensor)
        counts = jnp.isfinite(values)
        if mask is not None:
            counts &= align_mask(mask, values.shape) != 0
        # The place tells equal values apart: the choice is among values, not among numbers.
        place = jnp.arange(values.size, dtype=jnp.uint32)
        return self.sample({"value": values.reshape(-1), "place": place}, counts.reshape(-1))

    def show(self, kept: Any) -> Histogram:
        counts, edges = np.histogram(kept["value"].astype(np.float64), bins=self.num_buckets)
        return Histogram(counts=counts, edges=edges)
