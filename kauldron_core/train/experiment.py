"""`Experiment`: the fields of a trainer, and what follows from them alone."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optax

from kauldron_core.ckpts import Checkpointer
from kauldron_core.errors import ConfigError
from kauldron_core.evals import Evaluator, StateTransform
from kauldron_core.forward import Precision, RngStreams, TrainState
from kauldron_core.sharding import ShardingStrategy
from kauldron_core.train.last_batch import check_last_batch
from kauldron_core.train.loop.profiler import Profiler
from kauldron_core.train.loop.setup import Setup
from kauldron_core.train.loop.writer import EventsWriter, Writer
from kauldron_core.train.step.program import OnNonfinite, Outputs
from kauldron_core.train.step.trainstep import TrainStep

_OUTPUTS = {
    (logged, shown): Outputs(losses=logged, metrics=logged, summaries=shown)
    for logged in (False, True)
    for shown in (False, True)
}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
    """All parts of an experiment, without the means to train it; see `Trainer`, which adds them.

    Whatever looks at an experiment (checks, the loop, packs) takes this, so that `Trainer` stands above all of it.

    Attributes:
      seed: Root of all randomness.
      workdir: The folder of the experiment; without one nothing is written.
      train_ds: Training data.
      eval_ds: Data of the evaluators that have none of their own.
      model: A Flax linen module whose `Key` fields say where its arguments are in the context.
      rng_streams: Random streams of the model.
      sharding: What is split over the devices; by default batches, over all of them.
      num_train_steps: Updates to make; None takes every batch that the data has.
      stop_after_steps: End earlier, without a change of anything that depends on `num_train_steps`.
      log_metrics_every: Steps between two training metrics; the first and the last step are always logged.
      log_summaries_every: Steps between two summaries of training, at multiples of it.
      steps_per_call: Updates in one call of the compiled program. More cost less of the host; a call ends early where
        something is logged, evaluated or saved.
      microbatches: In how many parts a batch is worked off, with the result of the whole. Needs less memory.
      precision: In which types the model computes; None leaves everything as it is.
      remat: What the forward pass keeps for the backward pass, by its name in `jax.checkpoint_policies`
        (`dots_saveable`); the rest is computed again. None keeps everything.
      train_losses: Losses by name; their weighted sum is minimised.
      train_metrics: Metrics by name.
      train_summaries: Summaries by name, written to `workdir/summaries`.
      schedules: Functions of a count whose values are logged, by name: at the count with which the optimizer calls
        them (it skips updates, or gathers several into one), or at the step if it does not.
      optimizer: An optax optimizer.
      on_nonfinite: After a step with a non-finite loss: `stop` ends the run as diverged, `skip` leaves out the
        update (and looks at the gradients as well), `ignore` does not look.
      checkify_error_categories: Run-time checks in the step (`nan`, `index`, `div`, `user`, `float`, `all`). Each step
        then waits for the device.
      checkpointer: Saves to the workdir; None never saves.
      init_transform: Changes the state before the first step: loads parameters from elsewhere, for example. A run
        that resumes does not use it.
      profiler: Which steps are profiled; None is none.
      writer: Where events go.
      trainstep: The compiled step.
      evals: Evaluators by name.
      setup: What the process prepares before it trains.
      aux: Room for whatever else a config wants to hold; not used here.
      raw_cfg: The config that this was built from, None if it was built in Python.
    """

    seed: int = 0
    workdir: str | os.PathLike[str] | None = None
    train_ds: Any = None
    eval_ds: Any = None
    model: Any = None
    rng_streams: RngStreams = dataclasses.field(default_factory=RngStreams)
    sharding: ShardingStrategy = dataclasses.field(default_factory=ShardingStrategy)
    num_train_steps: int | None = None
    stop_after_steps: int | None = None
    log_metrics_every: int = 100
    log_summaries_every: int = 1000
    steps_per_call: int = 1
    microbatches: int = 1
    precision: Precision | None = None
    remat: str | None = None
    train_losses: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train_metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train_summaries: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    schedules: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    optimizer: optax.GradientTransformation | None = None
    on_nonfinite: OnNonfinite = "stop"
    checkify_error_categories: Sequence[str] = ()
    checkpointer: Checkpointer | None = dataclasses.field(default_factory=Checkpointer)
    init_transform: StateTransform | None = None
    profiler: Profiler | None = None
    writer: Writer = dataclasses.field(default_factory=EventsWriter)
    trainstep: TrainStep = dataclasses.field(default_factory=TrainStep)
    evals: Mapping[str, Evaluator] = dataclasses.field(default_factory=dict)
    setup: Setup = dataclasses.field(default_factory=Setup)
    aux: Any = None
    raw_cfg: Any = dataclasses.field(default=None, repr=False)

    def init_state(self) -> TrainState:
        """Returns the state before the first step."""
        state = self.trainstep.init(self.train_ds.element_spec)
        if self.init_transform is None:
            return state
        # The optimizer starts from the parameters that are loaded: a moving average of them, for example.
        state = self.init_transform.transform(state.replace(opt_state=None))
        state = state.replace(opt_state=self.trainstep.init_optimizer(state.params))
        finish = getattr(self.init_transform, "transform_after_optimizer", None)
        return state if finish is None else finish(state)

    @property
    def state_specs(self) -> TrainState:
        """Shapes and types of the state."""
        return self.trainstep.init_spec(self.train_ds.element_spec)

    @property
    def inline_evals(self) -> list[Evaluator]:
        """The evaluators that run inside training."""
        return [evaluator for evaluator in self.evals.values() if not evaluator.run.is_standalone]

    @property
    def last_step(self) -> int:
        """The step after which training ends.

        Raises:
          ConfigError: If nothing says when, the data ends before, or its last batch does not fit into the step.
        """
        limit = self.num_train_steps
        try:
            num_batches = len(self.train_ds)
        except TypeError:
            num_batches = None
        if limit is None and num_batches is None:
            raise ConfigError("num_train_steps: unset, and train_ds has no end. Set it, or train_ds.num_epochs.")
        if limit is not None and num_batches is not None and num_batches < limit:
            raise ConfigError(
                f"num_train_steps: {limit} steps are asked for, and train_ds ends after {num_batches} batches. "
                "Set train_ds.num_epochs to None (or more), or ask for fewer steps."
            )
        check_last_batch(
            self.train_ds,
            num_steps=limit,
            num_batches=num_batches,
            microbatches=getattr(self.trainstep, "microbatches", None) or 1,
            sharding=self.sharding,
        )
        known = [n for n in (limit, num_batches, self.stop_after_steps) if n is not None]
        return min(known)

    def outputs_at(self, step: int, *, last_step: int) -> Outputs:
        """Returns what the update that leads to `step` computes besides the state."""
        has_metrics = step in (1, last_step) or step % self.log_metrics_every == 0
        has_summaries = bool(self.train_summaries) and step % self.log_summaries_every == 0
        return _OUTPUTS[has_metrics, has_summaries]

    def end_of_call(self, step: int, *, last_step: int, is_cut_at: Callable[[int], bool]) -> int:
        """Returns the step at which the call that begins after `step` ends. Follows from the numbers of steps alone.

        Args:
          step: Updates made so far.
          last_step: The step after which training ends.
          is_cut_at: Whether something is to be done between two calls after that step, a save for example.
        """
        size = self.steps_per_call
        if size == 1:
            return step + 1
        end = min(step - step % size + size, last_step)
        for inner in range(step + 1, end):
            if self.outputs_at(inner, last_step=last_step) or is_cut_at(inner):
                return inner
        return end
