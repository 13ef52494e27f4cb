"""How values are distributed over fixed bins."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core import kontext
from kauldron_core.ktyping import Array, Scalar, typechecked
from kauldron_core.metrics.auto_state import AutoState
from kauldron_core.metrics.fields import sum_field
from kauldron_core.metrics.metric import Metric
from kauldron_core.metrics.shapes import as_float, weights_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Histogram(Metric):
    """Counts of values in bins of equal width. A bin holds its left edge, the last one its right edge too.

    Computes to a dict: `counts`, `edges`, and how many values were `below`, `above` or `nan`.

    Attributes:
      values: Any shape.
      mask: Booleans or weights for the leading dimensions.
      range: Left edge of the first bin and right edge of the last.
      bins: How many.
    """

    values: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    range: tuple[float, float] = (0.0, 1.0)
    bins: int = 30

    @flax.struct.dataclass
    class State(AutoState["Histogram"]):
        # In order: below, the bins, above, nan.
        counts: jax.Array = sum_field()
        edges: Any = flax.struct.field(pytree_node=False, default=())

        def compute(self) -> dict[str, Any]:
            below, *bins, above, nan = self.counts
            return {
                "counts": np.asarray(bins),
                "edges": np.asarray(self.edges),
                "below": below,
                "above": above,
                "nan": nan,
            }

    def __post_init__(self):
        if self.bins < 1 or not self.range[0] < self.range[1]:
            raise ValueError(f"Histogram: {self.bins} bins over {self.range} is no range of bins")
        object.__setattr__(self, "range", tuple(self.range))

    @property
    def edges(self) -> tuple[float, ...]:
        """The edges, as float32: what values on the device are compared with."""
        return tuple(float(edge) for edge in np.linspace(*self.range, self.bins + 1, dtype=np.float32))

    @typechecked
    def get_state(self, values: Array["*b"] | Scalar, mask: Any = None) -> Any:
        values = as_float(values)
        weights, flat = weights_of(mask, values.shape).reshape(-1), values.reshape(-1)
        edges = jnp.asarray(self.edges, values.dtype)
        place = jnp.searchsorted(edges, flat, side="right")
        place = jnp.where(flat == edges[-1], self.bins, place)
        place = jnp.where(jnp.isnan(flat), self.bins + 2, place)
        counts = jnp.zeros(self.bins + 3, weights.dtype).at[place].add(weights)
        return self.State(counts=counts, edges=self.edges)
