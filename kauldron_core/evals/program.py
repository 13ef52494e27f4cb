"""The compiled part of an evaluation: one batch in, states out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax

from kauldron_core import losses as losses_lib
from kauldron_core.forward import AuxiliariesState, Context, ForwardPass, TrainState, collect_metrics, padding_mask_of


@dataclasses.dataclass(frozen=True, eq=False)
class EvalProgram:
    """Computes some losses and metrics of one batch.

    Attributes:
      forward: Model and random streams.
      losses: Losses by name.
      metrics: Metrics by name.
    """

    forward: ForwardPass
    losses: Mapping[str, Any]
    metrics: Mapping[str, Any]

    def __call__(self, state: TrainState, batch: Any) -> AuxiliariesState:
        """Returns the states over the examples of `batch`. Starts the computation and does not wait for it."""
        return self._compiled(state.params, state.collections, state.step, batch)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute."""
        return not self.losses and not self.metrics

    @functools.cached_property
    def _compiled(self) -> Callable[..., AuxiliariesState]:
        return jax.jit(self._trace)

    def _trace(self, params: Any, collections: Any, step: Any, batch: Any) -> AuxiliariesState:
        mask = padding_mask_of(batch)
        context = Context(step=step, batch=batch, params=params, collections=collections)
        context = self.forward.evaluate(context)
        total, loss_states = losses_lib.compute_losses(self.losses, context, mask)
        context = context.replace(loss_total=total, loss_states=loss_states)
        return AuxiliariesState(
            loss_states=loss_states, metric_states=collect_metrics(self.metrics, context, padding_mask=mask)
        )
