"""`TrainStep`: the compiled step, for the loop and for whoever wants to write a loop of their own."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from kauldron_core.errors import ConfigError
from kauldron_core.forward import AuxiliariesState, Precision, RngStreams, TrainState
from kauldron_core.losses import named_losses
from kauldron_core.sharding import ShardingStrategy
from kauldron_core.sharding.placing import global_shapes
from kauldron_core.train.step.compiled import CompiledStep, CompileOptions, StepSource, compiled_step
from kauldron_core.train.step.layout import stacked, zeros_like
from kauldron_core.train.step.program import OnNonfinite, Outputs, Program, StepReport


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainStep:
    """Initialises and updates the state. What is unset is the trainer's.

    Attributes:
      model: The module.
      optimizer: An optax optimizer.
      losses: Losses by name.
      metrics: Metrics by name.
      summaries: Summaries by name.
      rng_streams: Random streams of the model.
      schedules: Functions of a count whose values are logged, see `Program`.
      on_nonfinite: What happens after a step with a non-finite loss.
      sharding: What is split over the devices.
      microbatches: In how many parts a batch is worked off.
      precision: In which types the model computes.
      remat: What the forward pass keeps for the backward pass, see `Program`.
      checkify_error_categories: Run-time checks in the step.
    """

    model: Any = None
    optimizer: Any = None
    losses: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] | None = None
    summaries: Mapping[str, Any] | None = None
    rng_streams: RngStreams | None = None
    schedules: Mapping[str, Callable[[Any], Any]] | None = None
    on_nonfinite: OnNonfinite | None = None
    sharding: ShardingStrategy | None = None
    microbatches: int | None = None
    precision: Precision | None = None
    remat: str | None = None
    checkify_error_categories: Sequence[str] | None = None

    def init(self, batch: Any) -> TrainState:
        """Returns the state before the first step.

        Args:
          batch: A batch, or its shapes (`ds.element_spec`).
        """
        structure, numbers = self._compiled_for(batch)
        return structure.init(numbers, zeros_like(batch))

    def init_optimizer(self, params: Any) -> Any:
        """Returns the state of the optimizer for these parameters. After `init`."""
        structure, numbers = self._compiled[0]
        return structure.init_optimizer(numbers, params)

    def init_spec(self, batch: Any) -> TrainState:
        """Returns shapes and types of the state, and its shardings; computes nothing."""
        structure, numbers = self._compiled_for(batch)
        return structure.init_spec(numbers)

    def step(
        self,
        state: TrainState,
        batch: Any,
        *,
        return_losses: bool = False,
        return_metrics: bool = False,
        return_summaries: bool = False,
    ) -> tuple[TrainState, AuxiliariesState]:
        """Returns the state after one update, and what is asked for. Does not wait for the device.

        Args:
          state: The state; its buffers are given to the new one, so it can't be used afterwards.
          batch: One batch; with several processes the part of this one.
          return_losses: Whether to return the states of the losses.
          return_metrics: Whether to compute the metrics.
          return_summaries: Whether to compute the summaries.
        """
        outputs = Outputs(losses=return_losses, metrics=return_metrics, summaries=return_summaries)
        state, report = self.run(state, [batch], outputs)
        return state, AuxiliariesState() if report is None else report.aux

    def run(
        self, state: TrainState, batches: Sequence[Any], outputs: Outputs, *, size: int = 1
    ) -> tuple[TrainState, StepReport | None]:
        """Returns the state after one update for each batch, in one call, and what the last one tells.

        Args:
          state: The state; its buffers are given to the new one.
          batches: At least one batch, and at most `size`.
          outputs: What the last update computes besides the state.
          size: For how many batches the call is compiled.
        """
        key = outputs, size
        if key not in self._calls:
            self._calls[key] = self._make_call(batches[0], outputs, size)
        return self._calls[key](state, batches)

    def flops(self, batch: Any) -> float | None:
        """Returns the floating point operations of one update by the compiler's account, None if it tells nothing."""
        structure, numbers = self._compiled_for(batch)
        lowered = structure.step(Outputs()).lower(numbers, self.init_spec(batch), batch)  # pyright: ignore[reportFunctionMemberAccess]
        return (lowered.cost_analysis() or {}).get("flops")

    def built_from(self, source: StepSource) -> None:
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
            summaries=self.summaries or {},
            on_nonfinite=self.on_nonfinite or "stop",
            microbatches=self.microbatches or 1,
            precision=self.precision,
            remat=self.remat,
        )

    def _make_call(self, batch: Any, outputs: Outputs, size: int) -> Callable[..., Any]:
        structure, numbers = self._compiled_for(batch)
        layout = structure.layout
        if size == 1:
            step = structure.step(outputs)
            if layout is None:
                return lambda state, batches: step(numbers, state, batches[0])
            return lambda state, batches: step(numbers, state, layout.put(batches[0]))
        call = structure.call(outputs)

        def run(state: TrainState, batches: Sequence[Any]) -> Any:
            stack = stacked(batches, size=size)
            return call(numbers, state, stack if layout is None else layout.put_stack(stack), len(batches))

        return run

    def _compiled_for(self, batch: Any) -> tuple[CompiledStep, tuple[jax.Array, ...]]:
        """Returns the compiled functions and their arguments, found with the first batch."""
        if not self._compiled:
            source: StepSource | None = getattr(self, "_source", None)
            compilation = CompileOptions(self.sharding, tuple(self.checkify_error_categories or ()))
            spec = _global_spec(batch)
            if source is None:
                found = CompiledStep(self._own_program, compilation=compilation, batch=spec), ()
            else:
                found = compiled_step(source, compilation, spec)
            self._compiled.append(found)
        return self._compiled[0]

    def _own_program(self, numbers: Any) -> Program:
        return self.program

    @functools.cached_property
    def _compiled(self) -> list[tuple[CompiledStep, tuple[jax.Array, ...]]]:
        return []

    @functools.cached_property
    def _calls(self) -> dict[tuple[Outputs, int], Callable[..., Any]]:
        return {}


def _global_spec(batch: Any) -> Any:
    """Returns the shapes of the whole batch, of which this process may hold a part; shapes are global already."""
    leaves, structure = jax.tree.flatten(batch)
    if all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        return batch
    return jax.tree.unflatten(structure, global_shapes(leaves))
