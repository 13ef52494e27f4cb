"""The one compiled step, mapped over the trials of a pack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from kauldron_core.forward import TrainState
from kauldron_core.packs.running.placement import Placement
from kauldron_core.train.step import program as program_lib
from kauldron_core.train.step.program import Outputs, Program, StepReport

_ONE_DEVICE = Placement(1)


class PackedPrograms:
    """Compiled functions over trials: numbers, states and reports have a first dimension for the trial.

    Args:
      build: Makes the program of one trial from the values of its arguments.
      arguments: Names of the arguments.
      has_own_batches: Whether each trial has a batch of its own; otherwise all see the same.
      placement: On which devices they are.
    """

    def __init__(
        self,
        build: Callable[[Mapping[str, Any]], Program],
        arguments: Sequence[str],
        *,
        has_own_batches: bool,
        placement: Placement = _ONE_DEVICE,
    ):
        self._build = build
        self._arguments = tuple(arguments)
        self._batch_axis = 0 if has_own_batches else None
        self._placement = placement
        self._calls: dict[tuple[Outputs, bool], Callable[..., Any]] = {}
        # Without arguments nothing else would say how many rows there are.
        size = None if self._arguments else _local_rows(placement)
        self._init = self._compiled(jax.vmap(self._init_one, in_axes=(0, None), axis_size=size), (0, None))
        self.are_sound = self._compiled(jax.vmap(program_lib.is_sound), (0,))

    def init(self, numbers: Sequence[Any], batch: Any) -> TrainState:
        """Returns the states before the first step."""
        return self._init(numbers, batch)

    def call(self, outputs: Outputs, *, size: int) -> Callable[..., tuple[TrainState, StepReport | None]]:
        """Returns the function of numbers, states (whose buffers it takes over), batches and their number.

        Args:
          outputs: What the last update computes besides the states.
          size: How many batches it takes at most; with 1 it takes a batch instead of a stack, and no number.
        """
        key = outputs, size > 1
        if key not in self._calls:
            if size > 1:
                in_stack = None if self._batch_axis is None else 1
                step, axes = program_lib.several(self._update, outputs), (0, 0, in_stack, None)
            else:
                step, axes = self._update(outputs), (0, 0, self._batch_axis)
            self._calls[key] = self._compiled(step, axes, donate_argnums=1)
        return self._calls[key]

    def _update(self, outputs: Outputs) -> Callable[..., tuple[TrainState, StepReport | None]]:
        def update(numbers: Sequence[Any], state: TrainState, batch: Any) -> tuple[TrainState, StepReport | None]:
            return program_lib.update(self._program(numbers), state, batch, outputs)

        return jax.vmap(update, in_axes=(0, 0, self._batch_axis))

    def _compiled(self, function: Callable[..., Any], axes: Sequence[int | None], **options: Any) -> Any:
        spread = self._placement.spread(function, axes)
        # Said for what comes out too: what goes in can then be taken over.
        return jax.jit(spread, out_shardings=self._placement.of_rows, **options)

    def _init_one(self, numbers: Sequence[Any], batch: Any) -> TrainState:
        return program_lib.init_state(self._program(numbers), batch)

    def _program(self, numbers: Sequence[Any]) -> Program:
        return self._build(dict(zip(self._arguments, numbers, strict=True)))


def _local_rows(placement: Placement) -> int:
    """Returns how many rows a program works on; it runs on each device where these have nothing to tell each other."""
    return placement.num_rows if placement.batch_devices > 1 else placement.num_rows // placement.trial_devices
