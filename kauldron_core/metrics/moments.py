"""Mean and spread, merged without the loss of digits that sums of squares suffer."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core import kontext
from kauldron_core.ktyping import Array, Scalar, typechecked
from kauldron_core.metrics.auto_state import AutoState
from kauldron_core.metrics.fields import state_field, sum_field
from kauldron_core.metrics.host import is_on_host
from kauldron_core.metrics.mask import apply_mask
from kauldron_core.metrics.metric import Metric
from kauldron_core.metrics.shapes import as_float, difference, weights_of
from kauldron_core.metrics.state import MetricT, State


@flax.struct.dataclass
class MomentsState(State[MetricT]):
    """Count, mean and sum of squared deviations from it, for one or several columns.

    The mean is kept in two parts, which together hold more digits than float32 has: of values that lie close together
    and far from 0, batches differ in the last digits of their means only.

    Source: Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances (1979).

    Attributes:
      count: How many values.
      base: A number near them.
      offset: Their mean is base + offset.
      squares: Sum of the squared distances from the mean.
    """

    count: jax.Array | np.ndarray
    base: jax.Array | np.ndarray
    offset: jax.Array | np.ndarray
    squares: jax.Array | np.ndarray

    @classmethod
    def from_values(cls, values: Any, weights: Any) -> Self:
        """Returns the state of values (n, *columns) with weights (n, *columns or 1s)."""
        values = as_float(values)
        weights = jnp.broadcast_to(weights, values.shape)
        count = weights.sum(axis=0)
        divisor = jnp.where(count == 0, 1, count)
        base = apply_mask(values, weights).sum(axis=0) / divisor
        distances = values - base
        offset = apply_mask(distances, weights).sum(axis=0) / divisor
        squares = apply_mask(jnp.square(distances - offset), weights).sum(axis=0)
        return cls(count=count, base=base, offset=offset, squares=squares)

    @classmethod
    def empty(cls) -> Self:
        zero = jnp.zeros((), jnp.float32)
        return cls(count=jnp.zeros((), jnp.int32), base=zero, offset=zero, squares=zero)

    def merge(self, other: Any) -> Self:
        xp = np if is_on_host((self, other)) else jnp
        count = self.count + other.count
        share = other.count / xp.where(count == 0, 1, count)
        delta = (other.base - self.base) + (other.offset - self.offset)
        squares = self.squares + other.squares + delta**2 * self.count * share
        return self.replace(count=count, offset=self.offset + delta * share, squares=squares)

    def compute(self) -> Any:
        """Returns the standard deviation (of the population), and 0 for no values."""
        xp = np if is_on_host(self) else jnp
        return xp.sqrt(self.squares / xp.where(self.count == 0, 1, self.count))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Std(Metric):
    """Standard deviation of all values seen (of the population: divided by their number).

    Attributes:
      values: Any shape.
      mask: Booleans or weights for the leading dimensions.
    """

    values: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    @flax.struct.dataclass
    class State(MomentsState["Std"]): ...

    @typechecked
    def get_state(self, values: Array["*b"] | Scalar, mask: Any = None) -> Any:
        values = jnp.asarray(values)
        return self.State.from_values(values.reshape(-1), weights_of(mask, values.shape).reshape(-1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class R2(Metric):
    """Share of the targets' variance that the predictions explain, averaged over the last dimension.

    A constant target gives 1 if it is predicted exactly and 0 otherwise.

    Attributes:
      preds: Shape `b`, or `*b n` for n outputs.
      targets: The same shape.
      mask: Booleans or weights for the leading dimensions.
    """

    better = "higher"

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    @flax.struct.dataclass
    class State(AutoState["R2"]):
        errors: jax.Array = sum_field()
        targets: Any = state_field()

        def compute(self) -> Any:
            spread = np.asarray(self.targets.squares)
            exact = np.where(self.errors > 0, 0.0, 1.0)
            ratio = 1.0 - self.errors / np.where(spread > 0, spread, 1.0)
            return np.where(spread > 0, ratio, exact).mean()

    @typechecked
    def get_state(self, preds: Array["*b"], targets: Array["*b"], mask: Any = None) -> Any:
        errors = jnp.square(difference(preds, targets))
        columns = errors.shape[-1] if errors.ndim > 1 else 1
        weights = weights_of(mask, errors.shape).reshape(-1, columns)
        targets = jnp.asarray(targets).reshape(-1, columns)
        return self.State(
            errors=apply_mask(errors.reshape(-1, columns), weights).sum(axis=0),
            targets=MomentsState.from_values(targets, weights),
        )
