"""What key paths can reach: the context of a training step, as shapes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax

from kauldron_core import kontext
from kauldron_core.forward import Context, padding_mask_of
from kauldron_core.inspect.specs import spec_text
from kauldron_core.inspect.table import Table
from kauldron_core.train.program import Outputs, Program

if TYPE_CHECKING:
    from kauldron_core.train import Trainer


@dataclasses.dataclass(frozen=True)
class _EveryLayer:
    """Reads inner outputs, so that they are recorded."""

    values: kontext.Key = "interms"


def context_specs(trainer: Trainer) -> Context:
    """Returns the context at the end of a training step, with shapes in the place of arrays. Computes nothing.

    Outputs of all layers are in it, whether or not a loss or metric reads them.
    """
    program = _recording(trainer.trainstep.program)

    def step(state: Any, batch: Any) -> Context:
        context = Context(step=state.step, batch=batch, params=state.params, collections=state.collections)
        context = context.replace(opt_state=state.opt_state)
        return program.descend(context, padding_mask_of(batch), Outputs(losses=True, metrics=True))

    return jax.eval_shape(step, trainer.state_specs, trainer.train_ds.element_spec)


def get_context_structure(trainer: Trainer) -> Table:
    """Returns every key path that losses and metrics can use, with dtype and shape."""
    leaves = kontext.flatten_with_path(context_specs(trainer))
    return Table(("Key", "Spec"), tuple((name, spec_text(leaf)) for name, leaf in leaves.items()))


def _recording(program: Program) -> Program:
    return dataclasses.replace(program, metrics={**program.metrics, "every_layer": _EveryLayer()})
