"""Gradient accumulation: a batch worked off in parts, with the result of the whole."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from kauldron_core import losses as losses_lib
from kauldron_core.errors import ConfigError
from kauldron_core.forward import Context, ForwardPass, collect_metrics, padding_mask_of


def accumulate(
    forward: ForwardPass, losses: Mapping[str, Any], metrics: Mapping[str, Any], context: Context, *, num_parts: int
) -> Context:
    """Returns `context` with the gradient of the whole batch, its losses, and the states of `metrics`. Traced.

    The number of real examples of every part is known before the first gradient, so parts with different numbers of
    them count as they would in one batch: nothing is an average of averages. Batch statistics see one part after the
    other.

    Args:
      forward: The forward pass.
      losses: Losses by name.
      metrics: Metrics of what the forward pass computes.
      context: Holds the state before the step, and the batch.
      num_parts: How many parts; the batch size has to be a multiple.
    """
    parts = _split(context.batch, num_parts)

    def losses_of(params: Any, collections: Any, index: Any) -> tuple[Context, dict[str, Any]]:
        batch = jax.tree.map(lambda leaf: leaf[index], parts)
        before = context.replace(batch=batch, params=params, collections=collections)
        after = forward.train(before, part=index)
        total, states = losses_lib.compute_losses(losses, after, padding_mask_of(batch))
        return after.replace(loss_total=total, loss_states=states), states

    def counts_of(counts: Any, index: Any) -> tuple[Any, None]:
        _, states = losses_of(context.params, context.collections, index)
        return {name: counts[name] + state.count for name, state in states.items()}, None

    # What counts, masks usually, is known without the model: the compiler leaves that out here.
    zeros = {name: jnp.zeros(()) for name, _ in losses_lib.named_losses(losses)}
    counts, _ = jax.lax.scan(counts_of, zeros, jnp.arange(num_parts))

    def share_of(params: Any, collections: Any, index: Any) -> tuple[jax.Array, tuple[Any, ...]]:
        after, states = losses_of(params, collections, index)
        share = sum(state.total / jnp.where(counts[name] == 0, 1.0, counts[name]) for name, state in states.items())
        metric_states = collect_metrics(metrics, after, padding_mask=padding_mask_of(after.batch))
        return jnp.asarray(share), (after.collections, states, metric_states)

    def add(carry: Any, index: Any) -> tuple[Any, Any]:
        collections, grads = carry
        (_, (collections, *states)), new = jax.value_and_grad(share_of, has_aux=True)(
            context.params, collections, index
        )
        return (collections, jax.tree.map(lambda total, part: total + part.astype(total.dtype), grads, new)), states

    # A sum of many parts needs more digits than bfloat16 has.
    start = context.collections, jax.tree.map(lambda p: jnp.zeros(p.shape, _sum_dtype(p)), context.params)
    (collections, grads), (loss_states, metric_states) = jax.lax.scan(add, start, jnp.arange(num_parts))
    grads = jax.tree.map(lambda total, param: total.astype(param.dtype), grads, context.params)
    loss_states, metric_states = (_merged(states, num_parts) for states in (loss_states, metric_states))
    return context.replace(
        collections=collections,
        grads=grads,
        loss_states=loss_states,
        loss_total=losses_lib.loss_totals(loss_states)["total"],
        metric_states=metric_states,
    )


def _sum_dtype(param: Any) -> Any:
    return jnp.promote_types(param.dtype, jnp.float32) if jnp.issubdtype(param.dtype, jnp.floating) else param.dtype


def _split(batch: Any, num_parts: int) -> Any:
    """Returns the batch with a new first dimension: part i has the rows i, i + num_parts, ...

    So each device has its share of every part, and no row moves.
    """

    def split(leaf: Any) -> Any:
        if jnp.ndim(leaf) == 0:
            return jnp.broadcast_to(leaf, (num_parts,))
        if leaf.shape[0] % num_parts:
            raise ConfigError(f"microbatches: a batch of {leaf.shape[0]} is no multiple of {num_parts}.")
        return leaf.reshape(leaf.shape[0] // num_parts, num_parts, *leaf.shape[1:]).swapaxes(0, 1)

    return jax.tree.map(split, batch)


def _merged(states: Mapping[str, Any], num_parts: int) -> dict[str, Any]:
    """Returns the states, stacked over parts, merged."""

    def merged(state: Any) -> Any:
        return functools.reduce(lambda whole, part: whole.merge(part), (_entry(state, i) for i in range(num_parts)))

    return {name: merged(state) for name, state in states.items()}


def _entry(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)
