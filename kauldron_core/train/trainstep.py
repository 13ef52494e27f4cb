"""`TrainStep`: the compiled step, for the loop and for whoever wants to write a loop of their own."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from kauldron_core.errors import ConfigError
from kauldron_core.forward import AuxiliariesState, RngStreams, TrainState
from kauldron_core.losses import named_losses
from kauldron_core.train.compiled import Source, Structure, structure_of
from kauldron_core.train.program import OnNonfinite, Outputs, Program, StepReport


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainStep:
    """Initialises and updates the state. What is unset is the trainer's.

    Attributes:
      model: The module.
      optimizer: An optax optimizer.
      losses: Losses by name.
      metrics: Metrics by name.
      rng_streams: Random streams of the model.
      schedules: Functions of the step whose values are logged.
      on_nonfinite: What happens after a step with a non-finite loss.
    """

    model: Any = None
    optimizer: Any = None
    losses: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] | None = None
    rng_streams: RngStreams | None = None
    schedules: Mapping[str, Callable[[Any], Any]] | None = None
    on_nonfinite: OnNonfinite | None = None

    def init(self, batch: Any) -> TrainState:
        """Returns the state before the first step.

        Args:
          batch: A batch, or its shapes (`ds.element_spec`).
        """
        structure, numbers = self._compiled_for(batch)
        return structure.init(numbers, _zeros_like(batch))

    def init_spec(self, batch: Any) -> TrainState:
        """Returns shapes and types of the state; computes nothing."""
        structure, numbers = self._compiled_for(batch)
        return jax.eval_shape(structure.init, numbers, batch)

    def step(
        self, state: TrainState, batch: Any, *, return_losses: bool = False, return_metrics: bool = False
    ) -> tuple[TrainState, AuxiliariesState]:
        """Returns the state after one update, and the losses and metrics asked for. Does not wait for the device.

        Args:
          state: The state; its buffers are given to the new one, so it can't be used afterwards.
          batch: One batch.
          return_losses: Whether to return the states of the losses.
          return_metrics: Whether to compute the metrics.
        """
        state, report = self.run(state, batch, Outputs(losses=return_losses, metrics=return_metrics))
        return state, AuxiliariesState() if report is None else report.aux

    def run(self, state: TrainState, batch: Any, outputs: Outputs) -> tuple[TrainState, StepReport | None]:
        """Returns what `step` does, with all that the step tells."""
        return self._step_for(batch, outputs)(state, batch)

    def built_from(self, source: Source) -> None:
        """Says where this came from, so that it shares compiled functions with those of the same structure."""
        object.__setattr__(self, "_source", source)

    @functools.cached_property
    def program(self) -> Program:
        """The parts that the step reads.

        Raises:
          ConfigError: If one is missing.
        """
        for name in ("model", "optimizer", "losses"):
            if getattr(self, name) is None:
                raise ConfigError(f"trainstep.{name}: unset. Give it, or put the TrainStep into a Trainer that has it.")
        return Program(
            model=self.model,
            optimizer=self.optimizer,
            losses=dict(named_losses(self.losses or {})),
            metrics=self.metrics or {},
            rng_streams=self.rng_streams or RngStreams(),
            schedules=self.schedules or {},
            on_nonfinite=self.on_nonfinite or "stop",
        )

    def _step_for(self, batch: Any, outputs: Outputs) -> Callable[..., Any]:
        if outputs not in self._steps:
            structure, numbers = self._compiled_for(batch)
            self._steps[outputs] = functools.partial(structure.step(outputs), numbers)
        return self._steps[outputs]

    def _compiled_for(self, batch: Any) -> tuple[Structure, tuple[jax.Array, ...]]:
        """Returns the compiled functions and their arguments, found with the first batch."""
        if not self._compiled:
            source = getattr(self, "_source", None)
            self._compiled.append((Structure(self._own_program), ()) if source is None else structure_of(source, batch))
        return self._compiled[0]

    def _own_program(self, numbers: Any) -> Program:
        return self.program

    @functools.cached_property
    def _compiled(self) -> list[tuple[Structure, tuple[jax.Array, ...]]]:
        return []

    @functools.cached_property
    def _steps(self) -> dict[Outputs, Callable[..., Any]]:
        return {}


def _zeros_like(batch: Any) -> Any:
    # NumPy: no program has to be compiled for them.
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), batch)
