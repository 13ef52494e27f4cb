"""What a training step costs, by the compiler's own account."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import jax

from kauldron_core.train.step import program as program_lib
from kauldron_core.train.step.program import Outputs

if TYPE_CHECKING:
    from kauldron_core.train import Trainer


@dataclasses.dataclass(frozen=True)
class StepCost:
    """The cost of one compiled step on this kind of device. A number that the backend does not tell is None.

    Attributes:
      flops: Floating point operations.
      bytes_accessed: Bytes read from and written to memory.
      argument_bytes: Size of state and batch.
      output_bytes: Size of the new state.
      temporary_bytes: Memory needed in between.
      aliased_bytes: Part of the output that takes the place of arguments.
    """

    flops: float | None
    bytes_accessed: float | None
    argument_bytes: int | None
    output_bytes: int | None
    temporary_bytes: int | None
    aliased_bytes: int | None

    @property
    def peak_bytes(self) -> int | None:
        """Memory that the step needs: arguments, outputs that do not take their place, and what is in between."""
        parts = (self.argument_bytes, self.output_bytes, self.temporary_bytes, self.aliased_bytes)
        if any(part is None for part in parts):
            return None
        arguments, outputs, temporary, aliased = (part or 0 for part in parts)
        return arguments + outputs + temporary - aliased


def lower_trainstep(trainer: Trainer) -> jax.stages.Lowered:
    """Returns the step of `trainer`, traced and not compiled: `.as_text()` prints it. Makes no parameters."""
    step = functools.partial(program_lib.update, trainer.trainstep.program, outputs=Outputs())
    specs: tuple[Any, Any] = (trainer.state_specs, trainer.train_ds.element_spec)
    return jax.jit(step, donate_argnums=0).lower(*specs)


def get_step_cost(trainer: Trainer) -> StepCost:
    """Returns operations, memory traffic and memory of one training step. Compiles it, and runs nothing."""
    compiled = lower_trainstep(trainer).compile()
    costs = compiled.cost_analysis() or {}
    memory = compiled.memory_analysis()
    return StepCost(
        flops=costs.get("flops"),
        bytes_accessed=costs.get("bytes accessed"),
        argument_bytes=getattr(memory, "argument_size_in_bytes", None),
        output_bytes=getattr(memory, "output_size_in_bytes", None),
        temporary_bytes=getattr(memory, "temp_size_in_bytes", None),
        aliased_bytes=getattr(memory, "alias_size_in_bytes", None),
    )
