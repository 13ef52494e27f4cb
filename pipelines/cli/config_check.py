"""Traces a training step and the evaluators of an experiment: shapes and types are worked out, nothing is computed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax

from pipelines.experiment import check_wiring

if TYPE_CHECKING:
    from kauldron_core.train import Trainer


def keep_off_devices() -> None:
    """Leaves accelerators alone: what a config makes while it is built goes to the processor."""
    jax.config.update("jax_platforms", "cpu")


def trace_step(trainer: Trainer, *, label: str = "") -> str:
    """Returns a line about the step of an experiment, once it and all evaluators are traced: its batch, its losses.

    Args:
      trainer: The experiment.
      label: Name of the trial, for messages.

    Raises:
      ConfigError: With what the step raised; whatever does not fit together is the config's mistake.
    """
    check_wiring(trainer, label=label)
    batch, state = trainer.train_ds.element_spec, trainer.state_specs
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
