"""Averages of values and of errors."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.ktyping import Array, Scalar, typechecked
from kauldron_core.metrics.average import AverageState
from kauldron_core.metrics.metric import Metric
from kauldron_core.metrics.shapes import difference


@dataclasses.dataclass(frozen=True, kw_only=True)
class Average(Metric):
    """Mean of values, each element counting once, or as much as its weight in the mask.

    Attributes:
      values: Any shape.
      mask: Booleans or weights for the leading dimensions.
    """

    values: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    @flax.struct.dataclass
    class State(AverageState["Average"]): ...

    @typechecked
    def get_state(self, values: Array["*b"] | Scalar, mask: Any = None) -> AverageState:
        return self.State.from_values(values, mask)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SingleDimension(Metric):
    """Mean of one element of the last dimension, or of all.

    Attributes:
      tensor: Shape `*b n`.
      index: Which element; None means all.
      mask: Booleans or weights for the leading dimensions.
    """

    tensor: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    index: int | None = 0

    @flax.struct.dataclass
    class State(AverageState["SingleDimension"]): ...

    @typechecked
    def get_state(self, tensor: Array["*b n"], mask: Any = None) -> AverageState:
        tensor = jnp.asarray(tensor)
        if self.index is None:
            return self.State.from_values(tensor, mask)
        if not -tensor.shape[-1] <= self.index < tensor.shape[-1]:
            raise ValueError(f"SingleDimension: index {self.index} is outside of shape {tensor.shape}")
        return self.State.from_values(tensor[..., self.index], mask)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mae(Metric):
    """Mean absolute error over all elements.

    Attributes:
      preds: Any shape.
      targets: The same shape.
      mask: Booleans or weights for the leading dimensions.
    """

    better = "lower"

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    @flax.struct.dataclass
    class State(AverageState["Mae"]): ...

    @typechecked
    def get_state(self, preds: Array["*b"], targets: Array["*b"], mask: Any = None) -> AverageState:
        return self.State.from_values(jnp.abs(difference(preds, targets)), mask)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mse(Metric):
    """Mean squared error over all elements.

    Attributes:
      preds: Any shape.
      targets: The same shape.
      mask: Booleans or weights for the leading dimensions.
    """

    better = "lower"

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    @flax.struct.dataclass
    class State(AverageState["Mse"]): ...

    @typechecked
    def get_state(self, preds: Array["*b"], targets: Array["*b"], mask: Any = None) -> AverageState:
        return self.State.from_values(jnp.square(difference(preds, targets)), mask)
