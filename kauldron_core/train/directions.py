"""What is better of each metric of an experiment, as its metrics and evaluators say it."""

from __future__ import annotations

from kauldron_core.ckpts import Checkpointer
from kauldron_core.metrics import directions_of
from kauldron_core.rundir import Better, Directions
from kauldron_core.train.experiment import Experiment
from kauldron_core.train.inherit import inherit, is_inherited


def metric_directions(trainer: Experiment) -> Directions:
    """Returns what is better of each metric that training and the evaluators of `trainer` give."""
    known: dict[str, Better] = directions_of(trainer.train_metrics, prefix="train/metrics")
    for name, evaluator in trainer.evals.items():
        said = getattr(evaluator, "directions", None)
        if said is None:  # Any object with `evaluate` may stand there.
            said = directions_of(getattr(evaluator, "metrics", None), prefix="metrics")
        known |= {f"{name}/{metric}": better for metric, better in said.items()}
    return Directions(known)


def with_mode(trainer: Experiment) -> Checkpointer | None:
    """Returns the checkpointer of `trainer`, which knows now which end of its metric is best.

    Raises:
      ConfigError: If nothing says so.
    """
    checkpointer = trainer.checkpointer
    if checkpointer is None or checkpointer.best_metric is None:
        return checkpointer
    given = None if is_inherited(checkpointer, "mode") else checkpointer.mode
    return inherit(
        checkpointer, mode=metric_directions(trainer).mode(checkpointer.best_metric, given, at="checkpointer.mode")
    )


def inline_losses(trainer: Experiment) -> list[str]:
    """Returns the names of the evaluators that run inside training and give a loss, in the order of the config."""
    return [evaluator.name for evaluator in trainer.inline_evals if getattr(evaluator, "losses", None)]
