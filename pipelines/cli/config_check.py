"""Traces one training step of an experiment: every shape and type is worked out, nothing is computed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax

from kauldron_core.errors import ConfigError

if TYPE_CHECKING:
    from kauldron_core.train import Trainer


def keep_off_devices() -> None:
    """Leaves accelerators alone: what a config makes while it is built goes to the processor."""
    jax.config.update("jax_platforms", "cpu")


def trace_step(trainer: Trainer, *, label: str = "") -> str:
    """Returns a line about the step of an experiment: parameters, batch, losses and metrics.

    Args:
      trainer: The experiment.
      label: Name of the trial, for messages.

    Raises:
      ConfigError: With what the step raised; whatever does not fit together is the config's mistake.
    """
    try:
        _ = trainer.last_step  # Looks at how much data there is.
        batch = trainer.train_ds.element_spec
        state = trainer.state_specs
        jax.eval_shape(
            lambda state, batch: trainer.trainstep.step(state, batch, return_losses=True, return_metrics=True),
            state,
            batch,
        )
    except Exception as error:  # a step calls the model, losses and metrics of the user, which raise what they like
        notes = "; ".join(note for note in getattr(error, "__notes__", ()) if "JAX_TRACEBACK_FILTERING" not in note)
        kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
        text = " ".join(f"{kind}{error}".split()) + (f" ({' '.join(notes.split())})" if notes else "")
        raise ConfigError(f"{f'trial {label}: ' if label else ''}the training step does not fit: {text}") from error
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state.params))
    losses, metrics = ", ".join(trainer.train_losses), ", ".join(trainer.train_metrics) or "none"
    return f"{count:,} parameters, batch {_shapes(batch)}, losses {losses}, metrics {metrics}"


def _shapes(batch: Any) -> str:
    """Returns the leaves of a batch as `image float32[128, 8, 8]`."""
    leaves = jax.tree_util.tree_leaves_with_path(batch)
    return ", ".join(
        f"{jax.tree_util.keystr(path, simple=True, separator='.')} {leaf.dtype}{list(leaf.shape)}"
        for path, leaf in leaves
    )
