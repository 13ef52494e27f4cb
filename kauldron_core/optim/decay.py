"""Decay towards the values that the parameters started from."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from kauldron_core.optim.masks import Mask


class DecayToInitState(NamedTuple):
    """The state of `decay_to_init`.

    Attributes:
      init_params: The parameters before the first step.
    """

    init_params: Any


def decay_to_init(weight_decay: float | jax.Array, mask: Mask | Any | None = None) -> optax.GradientTransformation:
    """Returns a transformation that adds `weight_decay * (params - initial params)` to the updates.

    Keeps a fine-tuned model near its start. Like `optax.add_decayed_weights` it comes before the scaling by the
    learning rate.

    Args:
      weight_decay: Strength of the pull.
      mask: Which parameters; all where unset.
    """

    def init(params: Any) -> DecayToInitState:
        # Copies: the parameters themselves are donated to the first step.
        return DecayToInitState(jax.tree.map(jnp.array, params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, DecayToInitState]:
        if params is None:
            raise ValueError("decay_to_init needs the parameters: call update(updates, state, params).")
        pulled = jax.tree.map(
            lambda update, now, start: (update + weight_decay * (now - start)).astype(jnp.result_type(update)),
            updates,
            params,
            state.init_params,
        )
        return pulled, state

    transform = optax.GradientTransformation(init, update)
    return transform if mask is None else optax.masked(transform, mask)
