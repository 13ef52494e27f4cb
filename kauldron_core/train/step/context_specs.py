"""What key paths can reach: the context of a training step, as shapes."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from kauldron_core import kontext
from kauldron_core.forward import Context, TrainState, collect_metrics, padding_mask_of
from kauldron_core.train.step.program import Outputs, Program

_ALL = Outputs(losses=True, metrics=True)


@dataclasses.dataclass(frozen=True)
class _EveryLayer:
    """Reads inner outputs, so that they are recorded."""

    values: kontext.Key = "interms"


def context_specs(program: Program, state: TrainState, batch: Any) -> Context:
    """Returns the context at the end of a training step, with shapes in the place of arrays. Computes nothing.

    Outputs of all layers are in it, whether or not a loss or metric reads them.

    Args:
      program: The parts of the step.
      state: Shapes of the state.
      batch: Shapes of a batch.
    """
    recording = dataclasses.replace(
        program, metrics={**program.metrics, "every_layer": _EveryLayer()}, microbatches=1, remat=None
    )

    def step(state: TrainState, batch: Any) -> Context:
        context = Context(step=state.step, batch=batch, params=state.params, collections=state.collections)
        mask = padding_mask_of(batch)
        context = recording.descend(context.replace(opt_state=state.opt_state), mask, _ALL)
        return context.replace(
            metric_states=collect_metrics(program.metrics, context, padding_mask=mask),
            summary_states=collect_metrics(program.summaries, context, padding_mask=mask),
        )

    return jax.eval_shape(step, state, batch)
