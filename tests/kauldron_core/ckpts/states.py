"""Small states, and what the tests of checkpoints do with them."""

from __future__ import annotations

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from kauldron_core import ckpts
from kauldron_core.forward import TrainState


def train_state(value: float = 1.0, *, width: int = 3, optimizer: Any = None) -> TrainState:
    """Returns a state with two layers, statistics and an Adam optimizer, every array filled with `value`."""
    params = {
        "encoder": {
            "kernel": jnp.full((4, width), value, jnp.float32),
            "bias": jnp.full((width,), value, jnp.bfloat16),
        },
        "head": [jnp.full((width, 2), value, jnp.float32), {}],
    }
    collections = {"batch_stats": {"mean": jnp.full((width,), value, jnp.float32)}}
    opt_state = (optimizer or optax.chain(optax.clip(1.0), optax.adam(1e-3))).init(params)
    return TrainState.create(params=params, collections=collections, opt_state=filled(opt_state, value))


def filled(tree: Any, value: float) -> Any:
    return jax.tree.map(lambda leaf: jnp.full_like(leaf, value), tree)


def save(workdir: pathlib.Path, *steps: int, **fields: Any) -> ckpts.Checkpointer:
    """Saves a state at each step, filled with the step's number, and waits until all is on disk."""
    checkpointer = ckpts.Checkpointer(workdir=workdir, **fields)
    for step in steps:
        checkpointer.save(train_state(step), {"next": step}, step=step)
        checkpointer.wait()
        checkpointer.finished()
    return checkpointer


def equal(left: Any, right: Any) -> bool:
    """Returns whether two trees hold the same arrays, bit for bit, in the same structure."""
    same = jax.tree.map(lambda a, b: a.dtype == b.dtype and np.array_equal(a, b), left, right)
    return jax.tree.structure(left) == jax.tree.structure(right) and all(jax.tree.leaves(same))
