"""`Loss`: the base class that does the masks, the weights and the averaging."""

from __future__ import annotations

import abc
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

import jax
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.metrics import AverageState, Metric, combine_masks

Schedule: TypeAlias = Callable[[Any], Any]
"""A number for each step."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loss(Metric):
    """Base class of losses: frozen dataclasses with `Key` fields and one pure method, `get_values`.

        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Quartic(Loss):
            preds: kontext.Key = kontext.REQUIRED
            targets: kontext.Key = kontext.REQUIRED

            def get_values(self, preds, targets):
                return (preds - targets) ** 4

    A `get_values` that has an argument `mask` is given the mask of the user and of the padding combined, or None: for
    losses over pairs of examples, which leave out an example on both sides.

    Attributes:
      mask: Key of booleans or weights for the leading dimensions of the values.
      weight: What the mean is multiplied with: a number, or a schedule of the step.
      normalize_by: What the masked sum is divided by: the sum of the `mask`, or the number of `values`.
      step: Key of the step, which only a schedule needs.
      depends_on_batch_size: Whether the value of one example depends on the others in its batch, so that no two batch
        sizes give the same mean.
    """

    better = "lower"

    step: kontext.Key = "step"
    mask: kontext.Key | None = None
    weight: float | Schedule = 1.0
    normalize_by: Literal["mask", "values"] = "mask"

    depends_on_batch_size: ClassVar[bool] = False

    State = AverageState

    def __post_init__(self):
        if self.normalize_by not in ("mask", "values"):
            raise ValueError(f"{type(self).__name__}: normalize_by is 'mask' or 'values', not {self.normalize_by!r}")

    @abc.abstractmethod
    def get_values(self, *args: Any, **kwargs: Any) -> jax.Array:
        """Returns the loss of each example (or pixel, or token): leading dimensions as in the batch."""

    def get_state(
        self, *, mask: Any = None, padding_mask: Any = None, step: Any = None, **kwargs: Any
    ) -> AverageState[Any]:
        """Returns the weighted mean of the values of one batch.

        Args:
          mask: Booleans or weights for the leading dimensions of the values.
          padding_mask: Booleans of shape (batch,): which examples are real. Those that are not count nowhere.
          step: The step, for a weight that is a schedule.
          **kwargs: Arguments of `get_values`.
        """
        combined = combine_masks(mask, padding_mask)
        if "mask" in inspect.signature(self.get_values).parameters:
            kwargs["mask"] = combined
        values = self.get_values(**kwargs)
        state = self.State.from_values(values, combined)
        if self.normalize_by == "values":
            state = state.replace(count=self.State.from_values(values, padding_mask).count)
        return state.replace(total=state.total * self.get_weight(step))

    def get_weight(self, step: Any = None) -> jax.Array:
        """Returns the weight at `step`."""
        return weight_at(self.weight, step, at=type(self).__name__)

    def _resolve_kwargs(self, context: Any) -> dict[str, Any]:
        keypaths = kontext.get_keypaths(self)
        if not callable(self.weight):
            keypaths.pop("step", None)
        return kontext.resolve_from_keypaths(context, keypaths, at=type(self).__name__)

    def _add_padding(self, kwargs: dict[str, Any], padding_mask: Any) -> None:
        # Apart from the mask of the user: `normalize_by='values'` counts what that one leaves out.
        kwargs["padding_mask"] = padding_mask


def weight_at(weight: Any, step: Any, *, at: str) -> jax.Array:
    """Returns a weight, which may be a schedule, as a number.

    Raises:
      ValueError: When it is a schedule and there is no step.
    """
    if not callable(weight):
        return jnp.asarray(weight, jnp.float32)
    if step is None:
        raise ValueError(f"{at}: the weight is a schedule, which needs the step")
    return jnp.asarray(weight(step), jnp.float32)
