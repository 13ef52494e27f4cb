"""Many losses at once: one total, and groups with totals of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from kauldron_core.losses.loss import Loss, Schedule
from kauldron_core.metrics import State

_TOTAL = "total"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossGroup:
    """Losses that have a total of their own and are weighed together.

    Attributes:
      losses: Losses by name, or groups of them.
      weight: A number, or a schedule of the step, that multiplies the weight of each.
    """

    losses: Mapping[str, Any]
    weight: float | Schedule = 1.0


@dataclasses.dataclass(frozen=True)
class TermProduct:
    """The schedule of a weight that is the product of two, of which at least one is a schedule."""

    left: Any
    right: Any

    def __call__(self, step: Any) -> Any:
        return _at(self.left, step) * _at(self.right, step)


def compute_losses(
    losses: Mapping[str, Any], context: Any, padding_mask: Any = None
) -> tuple[jax.Array, dict[str, State[Any]]]:
    """Returns the sum of all losses, each with its weight, and the state of each by name.

    Args:
      losses: Losses by name. A LossGroup, or a plain mapping, is a group: its losses are named `group/loss`.
      context: Holds the batch, the predictions and so on.
      padding_mask: Booleans of shape (batch,): which examples are real.

    Raises:
      ValueError: When a loss or group is called `total`, which is the name of the sum.
    """
    states = {}
    for name, loss in named_losses(losses):
        try:
            states[name] = loss.get_state_from_context(context, padding_mask=padding_mask)
        except Exception as error:
            error.add_note(f"while computing the loss {name!r}")
            raise
    return loss_totals(states)[_TOTAL], states


def loss_totals(
    states: Mapping[str, State[Any]], compute: Callable[[State[Any]], Any] = lambda state: state.compute()
) -> dict[str, Any]:
    """Returns the sum of all losses as `total`, and that of each group by its name.

    Args:
      states: As `compute_losses` returned them, of one batch or merged over many.
      compute: Returns the value of a state.
    """
    # The sums start from a Python number, which leaves those of host states in float64.
    totals: dict[str, Any] = {_TOTAL: 0.0 if states else jnp.zeros((), jnp.float32)}
    for name, state in states.items():
        value = compute(state)
        parts = name.split("/")
        for group in (_TOTAL, *("/".join(parts[:length]) for length in range(1, len(parts)))):
            totals[group] = value + totals.get(group, 0.0)
    return totals


def named_losses(losses: Mapping[str, Any], *, prefix: str = "", weight: Any = 1.0) -> Iterator[tuple[str, Loss]]:
    """Yields (name, loss) of all losses, those of groups as `group/loss` and with the weight of the group in their own.

    Args:
      losses: Losses by name, or groups of them.
      prefix: What their names start with.
      weight: A number or schedule that multiplies the weight of each.
    """
    for name, loss in losses.items():
        if name == _TOTAL:
            raise ValueError(f"{prefix}{name}: the name is taken by the sum of the losses; choose another")
        if isinstance(loss, LossGroup):
            inner_weight = _product(weight, loss.weight)
            yield from named_losses(loss.losses, prefix=f"{prefix}{name}/", weight=inner_weight)
        elif isinstance(loss, Mapping):
            yield from named_losses(loss, prefix=f"{prefix}{name}/", weight=weight)
        else:
            yield f"{prefix}{name}", _weighted(loss, weight)


def _weighted(loss: Loss, weight: Any) -> Loss:
    product = _product(loss.weight, weight)
    return loss if product is loss.weight else dataclasses.replace(loss, weight=product)


def _at(weight: Any, step: Any) -> Any:
    return weight(step) if callable(weight) else weight


def _product(left: Any, right: Any) -> Any:
    if isinstance(right, float | int) and right == 1:
        return left
    return TermProduct(left, right) if callable(left) or callable(right) else left * right
