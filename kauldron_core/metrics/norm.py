"""The size of vectors: of activations, gradients and parameters."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import flax.struct
import jax.numpy as jnp
import numpy as np

from kauldron_core import kontext
from kauldron_core.metrics.average import AverageState
from kauldron_core.metrics.metric import Metric
from kauldron_core.metrics.shapes import as_float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Norm(Metric):
    """Norm along an axis, averaged over the other dimensions.

    Attributes:
      tensor: Any shape.
      mask: Booleans or weights for the leading dimensions of the norms.
      axis: Along which; two axes give a matrix norm, None the norm of the whole array as one vector.
      ord: Order of the norm, as in `numpy.linalg.norm`.
      aggregation_type: `average` is the mean of the norms; `concat` the norm of all vectors as if they were one, over
        batches and, in a TreeReduce, over the leaves.
    """

    tensor: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    axis: int | tuple[int, int] | None = -1
    ord: float | str | None = None
    aggregation_type: Literal["average", "concat"] = "average"

    @flax.struct.dataclass
    class State(AverageState["Norm"]):
        def compute(self) -> Any:
            if self.parent is not None and self.parent.aggregation_type == "concat":
                return self.total ** (1 / self.parent.power)
            return super().compute()

    def __post_init__(self):
        if self.aggregation_type not in ("average", "concat"):
            raise ValueError(f"Norm: aggregation_type is 'average' or 'concat', not {self.aggregation_type!r}")
        is_power = self.ord is None or (isinstance(self.ord, int | float) and 0 < self.ord < np.inf)
        if self.aggregation_type == "concat" and not is_power:
            raise ValueError(f"Norm: 'concat' needs a positive finite order, not {self.ord!r}")

    @property
    def power(self) -> float:
        """The exponent whose sums add up over vectors."""
        return float(self.ord) if isinstance(self.ord, int | float) else 2.0

    def get_state(self, tensor: Any, mask: Any = None) -> AverageState:
        tensor = as_float(tensor)
        if self.axis is None:
            norm = jnp.linalg.norm(tensor.reshape(-1), ord=self.ord)
        else:
            # The axes stay, so that a mask for the batch can't be taken for one of what is left.
            norm = jnp.linalg.norm(tensor, ord=self.ord, axis=self.axis, keepdims=True)
        return self.State.from_values(norm if self.aggregation_type == "average" else norm**self.power, mask)
