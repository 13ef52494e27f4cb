"""Which intervals of an experiment are longer than its training."""

from __future__ import annotations

from collections.abc import Iterator

from kauldron_core.ckpts import Checkpointer
from kauldron_core.evals import EveryNSteps, Once
from kauldron_core.train.experiment import Experiment

_USUAL_SAVES = Checkpointer().save_interval_steps


def longer_than(trainer: Experiment, num_steps: int) -> Iterator[str]:
    """Yields, for each interval that never comes round within `num_steps`, a line that says what is left of it.

    The usual interval of the saves is nobody's choice, so nothing is said of it.
    """
    within = f"is more than the {num_steps} steps of training"
    for name, evaluator in trainer.evals.items():
        run = getattr(evaluator, "run", None)
        if type(run) is EveryNSteps and run.n > num_steps:
            when = "at the last step only" if run.skip_first else "at step 0 and at the last one only"
            yield f"evals.{name}.run: EveryNSteps({run.n}) {within}: it evaluates {when}."
        if type(run) is Once and run.n > num_steps:
            yield f"evals.{name}.run: Once({run.n}) {within}: it never evaluates."
    saves = getattr(trainer.checkpointer, "save_interval_steps", None)
    if saves is not None and saves > num_steps and saves != _USUAL_SAVES:
        yield f"checkpointer.save_interval_steps: {saves} {within}: only the last step is saved."
