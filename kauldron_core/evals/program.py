"""The compiled part of an evaluation: one batch in, states out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from kauldron_core import losses as losses_lib
from kauldron_core import metrics as metrics_lib
from kauldron_core.evals.packing import Packed, Stack, pack
from kauldron_core.evals.per_example import PerExample
from kauldron_core.forward import AuxiliariesState, Context, ForwardPass, TrainState, collect_metrics, padding_mask_of
from kauldron_core.sharding import ShardingStrategy


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """Losses and metrics by name."""

    losses: Mapping[str, Any]
    metrics: Mapping[str, Any]

    def __bool__(self) -> bool:
        return bool(self.losses or self.metrics)

    def where(self, condition: Callable[[Any], bool]) -> Parts:
        """Returns the losses and metrics for which `condition` holds."""
        return Parts(
            {name: loss for name, loss in self.losses.items() if condition(loss)},
            {name: metric for name, metric in self.metrics.items() if condition(metric)},
        )

    def collect(self, context: Context, padding_mask: Any) -> AuxiliariesState:
        """Returns the states over the batch of `context`. Traced."""
        total, loss_states = losses_lib.compute_losses(self.losses, context, padding_mask)
        context = context.replace(loss_total=total, loss_states=loss_states)
        metric_states = collect_metrics(self.metrics, context, padding_mask=padding_mask)
        return AuxiliariesState(loss_states=loss_states, metric_states=metric_states)


@dataclasses.dataclass(frozen=True, eq=False)
class EvalForward:
    """The forward pass of an evaluation.

    Attributes:
      forward: Model and random streams.
      sharding: Whose mesh the model means.
    """

    forward: ForwardPass
    sharding: ShardingStrategy | None = None

    def __call__(self, context: Context) -> Context:
        """Returns `context` with `preds` and `interms`. Traced."""
        with contextlib.nullcontext() if self.sharding is None else self.sharding.set_global_mesh():
            return self.forward.evaluate(context)


@dataclasses.dataclass(frozen=True, eq=False)
class EvalProgram:
    """Computes losses and metrics of one batch.

    Attributes:
      forward: The model.
      masked: What leaves out the padding of a padded batch.
      unmasked: What takes every row for an example.
      per_example: What to keep of each example.
      group_sizes: How many batches `many` takes, as soon as that is known; always the same number.
    """

    forward: EvalForward
    masked: Parts
    unmasked: Parts
    per_example: PerExample | None = None
    group_sizes: list[int] = dataclasses.field(default_factory=list)

    def __call__(self, state: TrainState, batch: Any) -> tuple[Packed, dict[str, Any]]:
        """Returns the states over the examples of `batch`, and what is kept of each row.

        Starts the computation and does not wait for it.
        """
        return self._compiled(state.params, state.collections, state.step, batch)

    def many(self, state: TrainState, stack: Any, count: int) -> Stack:
        """Returns the states of the first `count` of several batches, bit for bit what a call for each would give.

        Starts the computation and does not wait for it.
        """
        return Stack(self._compiled_many(state.params, state.collections, state.step, stack), count)

    @property
    def num_compiled(self) -> int:
        """How many programs were compiled for it."""
        return self._compiled._cache_size() + self._compiled_many._cache_size()

    @functools.cached_property
    def _compiled_many(self) -> Any:
        def many(params: Any, collections: Any, step: Any, stack: Any) -> Packed:
            return jax.lax.map(lambda batch: self.trace(params, collections, step, batch)[0], stack)

        return jax.jit(many)

    @functools.cached_property
    def _compiled(self) -> Any:
        return jax.jit(self.trace)

    def trace(self, params: Any, collections: Any, step: Any, batch: Any) -> tuple[Packed, dict[str, Any]]:
        """Returns what a call returns. Traced."""
        context = Context(step=step, batch=batch, params=params, collections=collections)
        context = self.forward(context)
        masked = self.masked.collect(context, padding_mask_of(batch))
        states = masked.merge(self.unmasked.collect(context, None))
        if self.per_example is None:
            return pack(states), {}
        losses = {**self.masked.losses, **self.unmasked.losses}
        return pack(states), self.per_example.outputs(losses, context, num_rows_of(batch))


def num_rows_of(batch: Any) -> int:
    """Returns how many rows a batch has, padding included."""
    return next(leaf.shape[0] for leaf in jax.tree.leaves(batch) if jnp.ndim(leaf))


def split_by_mask(forward: EvalForward, parts: Parts, state: TrainState, batch: Any) -> tuple[Parts, Parts]:
    """Returns the parts that can leave out padded examples, and those that can't. Computes nothing."""
    mask = padding_mask_of(batch)
    if mask is None:
        return parts, Parts({}, {})
    context = Context(step=state.step, batch=batch, params=state.params, collections=state.collections)
    context = jax.eval_shape(forward, context)
    takes_mask = {id(part) for part in _members(parts) if metrics_lib.accepts_padding(part, context, mask)}
    return parts.where(lambda part: id(part) in takes_mask), parts.where(lambda part: id(part) not in takes_mask)


def _members(parts: Parts) -> tuple[Any, ...]:
    return (*parts.losses.values(), *parts.metrics.values())
