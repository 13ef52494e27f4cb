"""`Trainer`: one experiment, described by its parts."""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

import jax
import optax

from kauldron_core.ckpts import Checkpointer
from kauldron_core.errors import ConfigError
from kauldron_core.evals import Evaluator, StateTransform, usable_in_evaluation
from kauldron_core.forward import AuxiliariesState, Blueprint, Context, Precision, RngStreams, TrainState
from kauldron_core.sharding import ShardingStrategy
from kauldron_core.train import best_metric, consistency, continuous, wiring
from kauldron_core.train import inherit as inherit_lib
from kauldron_core.train.directions import with_mode
from kauldron_core.train.inherit import inherit
from kauldron_core.train.loop import iteration as loop
from kauldron_core.train.loop.events import Event
from kauldron_core.train.loop.profiler import Profiler
from kauldron_core.train.loop.progress import bar
from kauldron_core.train.loop.session import Until
from kauldron_core.train.loop.setup import Setup
from kauldron_core.train.loop.writer import EventsWriter, NoWriter, Writer
from kauldron_core.train.step import eval_programs
from kauldron_core.train.step.compiled import Source
from kauldron_core.train.step.context_specs import context_specs
from kauldron_core.train.step.program import OnNonfinite, Outputs, Program
from kauldron_core.train.step.trainstep import TrainStep
from kauldron_core.train.trial_config import resolve_trial

STEP_FIELDS = (
    "checkify_error_categories",
    "microbatches",
    "model",
    "on_nonfinite",
    "optimizer",
    "precision",
    "remat",
    "rng_streams",
    "schedules",
    "seed",
    "sharding",
    "train_losses",
    "train_metrics",
    "train_summaries",
    "trainstep",
)
"""What the compiled step reads."""
_INHERITED = ("checkify_error_categories", "microbatches", "on_nonfinite", "precision", "remat", "sharding")
_OUTPUTS = {
    (logged, shown): Outputs(losses=logged, metrics=logged, summaries=shown)
    for logged in (False, True)
    for shown in (False, True)
}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Trainer:
    """An experiment that can be trained, evaluated and resumed.

    Parts take what they leave unset from here: the seed, the workdir, and (evaluators) data, losses and metrics.

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

    def __post_init__(self):
        consistency.check(self)
        for name, part in _bound_parts(self).items():
            object.__setattr__(self, name, part)
        consistency.check_best_metric(self)
        best_metric.check_is_measured(self)
        object.__setattr__(self, "checkpointer", with_mode(self))

    def __post_konfig_resolve__(self, cfg: Any) -> None:
        object.__setattr__(self, "raw_cfg", cfg)
        self.trainstep.built_from(step_source(cfg))
        for name, evaluator in self.evals.items():
            if isinstance(evaluator, Evaluator) and not evaluator.run.is_standalone:
                evaluator.share_programs(eval_programs.of(cfg, name))

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

    @functools.cached_property
    def context_specs(self) -> Context:
        """Shapes of all that losses and metrics can read, by key path, at the end of a training step."""
        return context_specs(self.trainstep.program, self.state_specs, self.train_ds.element_spec)

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
        consistency.check_last_batch(self, num_batches=num_batches)
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

    def train(self) -> TrainState:
        """Trains from the newest checkpoint, or from the beginning, and returns the final state."""
        if self.setup.eval_only:
            return loop.drain(self.iter_train())
        wiring.trace(self)
        with bar(self.setup.tqdm_info, num_steps=self.last_step, header=self._overview) as progress:
            return loop.drain(loop.iter_train(self, progress=progress))

    def _overview(self) -> str:
        """Returns one line about the model."""
        leaves = jax.tree.leaves(self.state_specs.params)
        count, size = sum(leaf.size for leaf in leaves), sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
        return f"{type(self.model).__name__}: {count:,} parameters in {len(leaves)} arrays, {size / 2**20:.2f} MiB"

    def iter_train(
        self, *, stop: threading.Event | None = None, until: Until | None = None, settle: bool = False
    ) -> Generator[Event, None, TrainState]:
        """Trains, and yields what happens. Closing the generator waits for a running save and ends data workers.

        Args:
          stop: When set (or on SIGTERM), the state is saved at the end of the running step and training ends as
            preempted.
          until: Is shown each record of metrics and returns why training ends with its step, else None. All is then
            done that is done after the last step, and training ends as stopped.
          settle: Wait for the metrics of each step that has any, and say with `Settled` that there will be no more of
            it: for whoever decides about this training by its metrics.
        """
        if self.setup.eval_only:
            return loop.iter_eval(self, stop=stop)
        return loop.iter_train(self, stop=stop, until=until, settle=settle)

    @classmethod
    def eval_only(cls, *, workdir: str | os.PathLike[str], evals: Mapping[str, Evaluator], **fields: Any) -> Trainer:
        """Returns the experiment of a trial with other evaluators, which only evaluates: `train` makes no update.

            cfg = kd.train.Trainer.eval_only(workdir="runs/demo/trials/0000", evals={...})

        Args:
          workdir: The folder of the trial; its config and checkpoints are read, and nothing is written to it.
          evals: Evaluators by name. What they leave unset is the trial's.
          **fields: Other fields to change, `eval_ds` for example.

        Raises:
          ConfigError: If the folder is not a trial's.
        """
        trainer = resolve_trial(workdir)
        if not isinstance(trainer, cls):
            raise ConfigError(f"{os.fspath(workdir)}: holds a {type(trainer).__name__}, not a {cls.__name__}.")
        setup = dataclasses.replace(trainer.setup, eval_only=True)
        return dataclasses.replace(trainer, evals=evals, setup=setup, writer=NoWriter(), **fields)

    def trace(self) -> None:
        """Raises what the step, its summaries and every evaluator would raise for their wiring. Computes nothing."""
        wiring.trace(self)

    def continuous_eval(self, names: str | Iterable[str] | None = None, **kwargs: Any) -> dict[str, AuxiliariesState]:
        """Evaluates checkpoints as another process writes them. See `continuous.continuous_eval`."""
        return continuous.continuous_eval(self, names, **kwargs)


def step_source(cfg: Any, *, others: Collection[str] = ()) -> Source:
    """Returns where the step of an experiment comes from.

    Args:
      cfg: Its config.
      others: Paths of numbers, beside those of optimizer, schedules, losses and seed, that may be arguments.
    """
    blueprint = Blueprint.of(cfg, STEP_FIELDS, numbers_in=("optimizer", "schedules", "train_losses"), others=others)
    return Source(blueprint, _program_of)


def _bound_parts(trainer: Trainer) -> dict[str, Any]:
    """Returns the parts of `trainer` with what they inherit from it."""
    rng_streams = inherit(trainer.rng_streams, seed=trainer.seed)
    shared = {
        "model": trainer.model,
        "rng_streams": rng_streams,
        "sharding": trainer.sharding,
        "precision": trainer.precision,
    }
    eval_ds = inherit(trainer.eval_ds, seed=trainer.seed)
    return {
        "rng_streams": rng_streams,
        "train_ds": inherit(trainer.train_ds, seed=trainer.seed),
        "eval_ds": eval_ds,
        "checkpointer": inherit(trainer.checkpointer, workdir=trainer.workdir),
        "profiler": inherit(trainer.profiler, workdir=trainer.workdir),
        "writer": inherit(trainer.writer, workdir=trainer.workdir),
        "trainstep": _bound_step(
            {field: getattr(trainer, field) for field in STEP_FIELDS} | {"rng_streams": rng_streams}
        ),
        "evals": {
            name: _bound_evaluator(trainer, evaluator, name=name, ds=eval_ds, **shared)
            for name, evaluator in trainer.evals.items()
        },
    }


def _bound_step(parts: Mapping[str, Any]) -> TrainStep:
    """Returns the step with what it inherits from these fields of a trainer."""
    return inherit(
        parts["trainstep"],
        model=parts["model"],
        rng_streams=inherit(parts["rng_streams"], seed=parts["seed"]),
        optimizer=parts["optimizer"],
        losses=parts["train_losses"],
        metrics=parts["train_metrics"],
        schedules=parts["schedules"],
        summaries=parts["train_summaries"],
        **{name: parts[name] for name in _INHERITED},
    )


def _program_of(parts: Mapping[str, Any]) -> Program:
    """Returns the program of a step whose config has these fields."""
    return _bound_step({**_step_defaults(), **parts}).program


def _step_defaults() -> dict[str, Any]:
    fields = {field.name: field for field in dataclasses.fields(Trainer)}
    chosen = [fields[name] for name in STEP_FIELDS]
    return {f.name: f.default if f.default_factory is dataclasses.MISSING else f.default_factory() for f in chosen}


def _bound_evaluator(trainer: Trainer, evaluator: Evaluator, *, name: str, **shared: Any) -> Evaluator:
    bound = inherit(
        inherit_lib.replace(evaluator, name=name),
        losses=trainer.train_losses,
        metrics=usable_in_evaluation(trainer.train_metrics),
        **shared,
    )
    if bound.ds is not shared["ds"]:
        bound = inherit_lib.replace(bound, ds=inherit(bound.ds, seed=trainer.seed))
    # Any object with `evaluate` may stand here; ours tell at once what they lack.
    if hasattr(bound, "check"):
        bound.check()
    return bound
