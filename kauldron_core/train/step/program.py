"""The traced part of training: how one batch changes the state. A function of parts, which knows no trainer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import optax

from kauldron_core import losses as losses_lib
from kauldron_core.forward import (
    AuxiliariesState,
    Context,
    ForwardPass,
    Precision,
    RngStreams,
    TrainState,
    collect_metrics,
    health_after,
    padding_mask_of,
    reads,
)
from kauldron_core.optim import count_of
from kauldron_core.train.step.accumulate import accumulate

OnNonfinite = Literal["stop", "skip", "ignore"]
_METRICS, _SUMMARIES = "metrics/", "summaries/"
_AFTER_FORWARD = ("grads", "updates", "opt_state", "subgrads", "subupdates", "loss_states", "loss_total")


class Outputs(NamedTuple):
    """What a step computes besides the new state. Each choice is a program of its own, so what is off costs nothing."""

    losses: bool = False
    metrics: bool = False
    summaries: bool = False

    def __bool__(self) -> bool:
        return self.losses or self.metrics or self.summaries


@flax.struct.dataclass
class StepReport:
    """What a step tells.

    Attributes:
      aux: States of losses and metrics over this batch.
      schedules: Value of each schedule that this step used.
      health: Whether all was finite up to and including this step, see `Health.of`.
    """

    aux: AuxiliariesState
    schedules: dict[str, jax.Array]
    health: jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """The parts of an experiment that its step reads.

    Attributes:
      model: The module.
      optimizer: What turns gradients into updates.
      losses: Losses by name; their weighted sum is minimised.
      metrics: Metrics by name.
      rng_streams: Random streams of the model.
      schedules: Functions of a count whose values are logged: of the optimizer's own if it calls them, else the step.
      summaries: Summaries by name.
      on_nonfinite: What happens after a step with a non-finite loss.
      microbatches: In how many parts a batch is worked off.
      precision: In which types the model computes.
      remat: Name of the policy in `jax.checkpoint_policies` that says what the forward pass keeps for the backward
        pass; the rest is computed again. None keeps everything.
    """

    model: Any
    optimizer: optax.GradientTransformation
    losses: Mapping[str, Any]
    metrics: Mapping[str, Any]
    rng_streams: RngStreams
    schedules: Mapping[str, Callable[[Any], Any]]
    summaries: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    on_nonfinite: OnNonfinite = "stop"
    microbatches: int = 1
    precision: Precision | None = None
    remat: str | None = None

    def forward(self, outputs: Outputs) -> ForwardPass:
        """Returns the forward pass; it records inner outputs only for what is asked for."""
        readers = (*self.losses.values(), *self.reporters(outputs).values())
        if self.remat is None:
            return ForwardPass(self.model, self.rng_streams, readers, precision=self.precision)
        return RematForwardPass(self.model, self.rng_streams, readers, precision=self.precision, policy=self.remat)

    def reporters(self, outputs: Outputs) -> dict[str, Any]:
        """Returns the metrics and summaries that are asked for, as `metrics/NAME` and `summaries/NAME`."""
        metrics = self.metrics if outputs.metrics else {}
        summaries = self.summaries if outputs.summaries else {}
        return {f"{_METRICS}{name}": metric for name, metric in metrics.items()} | {
            f"{_SUMMARIES}{name}": summary for name, summary in summaries.items()
        }

    def descend(self, context: Context, mask: Any, outputs: Outputs) -> Context:
        """Returns `context` with forward and backward pass, the updates and the new state of the optimizer. Traced.

        Args:
          context: Holds the state before the step, and the batch.
          mask: The padding mask of the batch, or None.
          outputs: What is asked for.
        """
        context = _differentiate(self, context, mask, outputs)
        updates, opt_state = optax.with_extra_args_support(self.optimizer).update(
            context.grads, context.opt_state, context.params, value=context.loss_total
        )
        return context.replace(updates=updates, opt_state=opt_state)


@dataclasses.dataclass(frozen=True, eq=False)
class RematForwardPass(ForwardPass):
    """A forward pass that keeps less of what it computes.

    Attributes:
      policy: What it keeps.
    """

    policy: str = "nothing_saveable"

    def train(self, context: Context, *, part: Any = None) -> Context:
        """Returns what `ForwardPass.train` does. Traced."""

        def train(params: Any, part: Any) -> Context:
            return ForwardPass.train(self, context.replace(params=params), part=part)

        return jax.checkpoint(train, policy=getattr(jax.checkpoint_policies, self.policy))(context.params, part)


def init_state(program: Program, batch: Any) -> TrainState:
    """Returns the state before the first step. Traceable; only shapes of `batch` count."""
    params, collections = program.forward(Outputs()).init(batch)
    return TrainState.create(params=params, collections=collections, opt_state=program.optimizer.init(params))


def update(program: Program, state: TrainState, batch: Any, outputs: Outputs) -> tuple[TrainState, StepReport | None]:
    """Returns the state after one update, and what the step tells if anything is asked for. Traced."""
    mask = padding_mask_of(batch)
    context = Context(step=state.step, batch=batch, params=state.params, collections=state.collections)
    context = program.descend(context.replace(opt_state=state.opt_state), mask, outputs)
    new_state = state.replace(
        step=state.step + 1,
        params=optax.apply_updates(state.params, context.updates),
        collections=context.collections,
        opt_state=context.opt_state,
    )
    new_state = _watch(program, state, new_state, context)
    if not outputs:
        return new_state, None
    done = context.metric_states or {}
    missing = {key: reporter for key, reporter in program.reporters(outputs).items() if key not in done}
    states = {**done, **collect_metrics(missing, context, padding_mask=mask)}
    return new_state, StepReport(
        aux=AuxiliariesState(
            loss_states=context.loss_states if outputs.losses else {},
            metric_states=_of_kind(states, _METRICS),
            summary_states=_of_kind(states, _SUMMARIES),
        ),
        schedules=_schedule_values(program, state),
        health=new_state.health,
    )


def _schedule_values(program: Program, state: TrainState) -> dict[str, jax.Array]:
    """Returns what the update of `state` takes from each schedule: at the optimizer's own count if it calls it."""
    counts = {name: count_of(one, program.optimizer, state.opt_state) for name, one in program.schedules.items()}
    return {
        name: jnp.asarray(schedule(state.step if counts[name] is None else counts[name]))
        for name, schedule in program.schedules.items()
    }


def several(update: Callable[[Outputs], Callable[..., Any]], outputs: Outputs) -> Callable[..., Any]:
    """Returns the function of numbers, state, a stack of batches and how many of them count: one update for each.

    Args:
      update: Returns for some outputs the function of numbers, state and batch.
      outputs: What the last update computes besides the state; the others compute nothing else.
    """
    silent, last = update(Outputs()), update(outputs)

    def call(numbers: Sequence[Any], state: TrainState, stack: Any, count: Any) -> tuple[TrainState, Any]:
        def body(index: Any, state: TrainState) -> TrainState:
            return silent(numbers, state, _entry(stack, index))[0]

        state = jax.lax.fori_loop(0, count - 1 if outputs else count, body, state)
        return last(numbers, state, _entry(stack, count - 1)) if outputs else (state, None)

    return call


def _entry(stack: Any, index: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), stack)


def _differentiate(program: Program, context: Context, mask: Any, outputs: Outputs) -> Context:
    """Returns `context` with everything that forward and backward pass compute."""
    forward = program.forward(outputs)
    if program.microbatches > 1:
        reporters = program.reporters(outputs)
        early = {key: reporter for key, reporter in reporters.items() if not _reads_any(reporter, _AFTER_FORWARD)}
        return accumulate(forward, program.losses, early, context, num_parts=program.microbatches)

    def loss(params: Any) -> tuple[jax.Array, Context]:
        after = forward.train(context.replace(params=params))
        total, states = losses_lib.compute_losses(program.losses, after, mask)
        return total, after.replace(loss_total=total, loss_states=states)

    (_, after), grads = jax.value_and_grad(loss, has_aux=True)(context.params)
    return after.replace(params=context.params, grads=grads)


def _of_kind(states: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): state for name, state in states.items() if name.startswith(prefix)}


def _reads_any(reader: Any, fields: Sequence[str]) -> bool:
    return any(reads(reader, field) for field in fields)


def _watch(program: Program, old: TrainState, new: TrainState, context: Context) -> TrainState:
    """Returns `new` with its health, or `old` but for the step where a bad update is to be skipped."""
    if program.on_nonfinite == "ignore":
        return new
    is_good, bad_loss = _check_losses(context)
    if program.on_nonfinite == "skip":
        # A step that goes on must look at the gradients too; one that stops finds them in the state before a save.
        bad_loss = jnp.where(is_good, -1, bad_loss)
        is_good &= all_finite(context.grads)
        kept = jax.tree.map(lambda a, b: jnp.where(is_good, a, b), _learned(new), _learned(old))
        new = new.replace(params=kept[0], collections=kept[1], opt_state=kept[2])
    return new.replace(health=health_after(old.health, new.step, is_good=is_good, bad_loss=bad_loss))


def _check_losses(context: Context) -> tuple[jax.Array, jax.Array | int]:
    """Returns whether the losses are finite, and the index of the first (by name) that is not."""
    states = [state for _, state in sorted(context.loss_states.items())]
    bad_loss: jax.Array | int = len(states) - 1
    for index in reversed(range(len(states) - 1)):
        bad_loss = jnp.where(jnp.isfinite(states[index].compute()), bad_loss, index)
    return jnp.isfinite(context.loss_total), bad_loss


def all_finite(tree: Any) -> jax.Array:
    """Returns whether every float in `tree` is finite. Traced."""
    flags = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.all(jnp.stack(flags)) if flags else jnp.bool_(True)


def is_sound(state: TrainState) -> jax.Array:
    """Returns whether `state` may be saved. Optimizers keep infinities on purpose (a best value so far), never NaN."""
    learned = all_finite((state.params, state.collections))
    floats = [leaf for leaf in jax.tree.leaves(state.opt_state) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return learned & ~jnp.any(jnp.array([jnp.any(jnp.isnan(leaf)) for leaf in floats], bool))


def _learned(state: TrainState) -> tuple[Any, Any, Any]:
    return state.params, state.collections, state.opt_state
