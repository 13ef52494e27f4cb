"""Traces all that is wired before anything runs: a key that leads nowhere shows now, not after hours of training."""

from __future__ import annotations

import logging

import jax

from kauldron_core.forward.precision import check_params
from kauldron_core.optim import Schedule, held_by
from kauldron_core.train import intervals
from kauldron_core.train.experiment import Experiment

_logger = logging.getLogger(__name__)


def trace(trainer: Experiment) -> None:
    """Raises what the step, its metrics and summaries, and every evaluator would raise for their wiring.

    Everything is traced with the shapes of its own data, evaluators that run outside of training too. Nothing is
    computed; what the step traces here, it does not trace again.

    Args:
      trainer: The experiment.
    """
    last_step = trainer.last_step  # Looks at how much data there is.
    for line in intervals.longer_than(trainer, last_step):
        _logger.warning("%s", line)
    for schedule in held_by(trainer.optimizer, Schedule):
        if (odd := schedule.oddity(trainer.num_train_steps or last_step)) is not None:
            _logger.warning("optimizer: schedule %r: %s.", schedule.name, odd)
    batch, state = trainer.train_ds.element_spec, trainer.state_specs
    check_params(state.params)
    outputs = {"return_losses": True, "return_metrics": True}
    for extra in ({}, {"return_summaries": True}) if trainer.train_summaries else ({},):
        jax.eval_shape(lambda s, b, extra=extra: trainer.trainstep.step(s, b, **outputs, **extra), state, batch)
    for name, evaluator in trainer.evals.items():
        if hasattr(evaluator, "trace"):
            try:
                evaluator.trace(state)
            except Exception as error:
                error.add_note(f"while tracing evals.{name}")
                raise
