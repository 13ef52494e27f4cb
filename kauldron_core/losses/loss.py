"""`Loss`: the base class that does the masks, the weights and the averaging, and `compute_losses`."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.metrics import AverageState, Metric, State, combine_masks

Schedule: TypeAlias = Callable[[Any], Any]
"""A number for each step."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loss(Metric):
    """Base class of losses: frozen dataclasses with `Key` fields and one pure method, `get_values`.

    Attributes:
      mask: Key of booleans or weights for the leading dimensions of the values.
      weight: What the mean is multiplied with: a number, or a schedule of the step.
      normalize_by: What the masked sum is divided by: the sum of the `mask`, or the number of `values`.
      step: Key of the step, which only a schedule needs.
    """

    step: kontext.Key = "step"
    mask: kontext.Key | None = None
    weight: float | Schedule = 1.0
    normalize_by: Literal["mask", "values"] = "mask"

    State = AverageState

    def __post_init__(self):
        if self.normalize_by not in ("mask", "values"):
            raise ValueError(f"{type(self).__name__}: normalize_by is 'mask' or 'values', not {self.normalize_by!r}")

    @abc.abstractmethod
    def get_values(self, *args: Any, **kwargs: Any) -> jax.Array:
        """Returns the loss of each example (or pixel, or token): leading dimensions as in the batch."""

    def get_state(self, *, mask: Any = None, padding_mask: Any = None, step: Any = None, **kwargs: Any) -> State[Any]:
        """Returns the weighted mean of the values of one batch.

        Args:
          mask: Booleans or weights for the leading dimensions of the values.
          padding_mask: Booleans of shape (batch,): which examples are real. Those that are not count nowhere.
          step: The step, for a weight that is a schedule.
          **kwargs: Arguments of `get_values`.
        """
        values = self.get_values(**kwargs)
        state = self.State.from_values(values, combine_masks(mask, padding_mask))
        if self.normalize_by == "values":
            state = state.replace(count=self.State.from_values(values, padding_mask).count)
        return state.replace(total=state.total * self.get_weight(step))

    def get_weight(self, step: Any = None) -> jax.Array:
        """Returns the weight at `step`."""
        if not callable(self.weight):
            return jnp.asarray(self.weight, jnp.float32)
        if step is None:
            raise ValueError(f"{type(self).__name__}: the weight is a schedule, which needs the step")
        return jnp.asarray(self.weight(step), jnp.float32)

    def _resolve_kwargs(self, context: Any) -> dict[str, Any]:
        keypaths = {name: path for name, path in kontext.get_keypaths(self).items() if path is not None}
        if not callable(self.weight):
            keypaths.pop("step", None)
        return kontext.resolve_from_keypaths(context, keypaths, at=type(self).__name__)


def compute_losses(
    losses: Mapping[str, Any], context: Any, padding_mask: Any = None
) -> tuple[jax.Array, dict[str, State[Any]]]:
    """Returns the sum of all losses, each with its weight, and the state of each by name.

    Args:
      losses: Losses by name, or mappings of such: the names of those are joined with `/`.
      context: Holds the batch, the predictions and so on.
      padding_mask: Booleans of shape (batch,): which examples are real.
    """
    states = {
        name: loss.get_state_from_context(context, padding_mask=padding_mask) for name, loss in named_losses(losses)
    }
    total = sum((state.compute() for state in states.values()), start=jnp.zeros((), jnp.float32))
    return total, states


def named_losses(losses: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Loss]]:
    """Yields (name, loss) of a mapping of losses, or of mappings of losses."""
    for name, loss in losses.items():
        if isinstance(loss, Mapping):
            yield from named_losses(loss, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", loss
