"""Whether the checkpoints that are kept as the best can be measured: an evaluation has to meet the saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.evals import EveryNSteps, Final, Once, StandaloneLastCheckpoint
from kauldron_core.losses import named_losses
from kauldron_core.train.experiment import Experiment

if TYPE_CHECKING:
    from kauldron_core.ckpts import Checkpointer

_AT = "checkpointer.best_metric"


def check_is_measured(trainer: Experiment) -> None:
    """Refuses to choose the best checkpoint by a metric that is not measured at the steps of checkpoints.

    Evaluations that leave out some saves are fine, and so are saves that leave out some evaluations: only where the
    two meet by chance would the best be that of a few that nobody chose, however many are kept.

    Raises:
      ConfigError: With the intervals that fit.
    """
    keeper = trainer.checkpointer
    if keeper is None or keeper.best_metric is None:
        return
    name, _, key = keeper.best_metric.partition("/")
    if name == "train":
        _check_training_key(trainer, key)
    if _has_one_save(trainer, keeper):
        return  # There is nothing to choose from.
    if name == "train":
        _check_interval(keeper, trainer.log_metrics_every, at="log_metrics_every", metric="training metrics come")
    elif name in trainer.evals:
        _check_run(keeper, getattr(trainer.evals[name], "run", None), name)


def _has_one_save(trainer: Experiment, keeper: Checkpointer) -> bool:
    steps, saves = trainer.num_train_steps, keeper.save_interval_steps
    return keeper.save_interval_s is None and steps is not None and saves is not None and saves >= steps


def _check_training_key(trainer: Experiment, key: str) -> None:
    known = [f"losses/{name}" for name in ("total", *dict(named_losses(trainer.train_losses)))]
    known += [f"metrics/{name}" for name in trainer.train_metrics]
    is_ours = key.split("/")[0] in ("losses", "metrics")
    if is_ours and not any(key == one or key.startswith(f"{one}/") or one.startswith(f"{key}/") for one in known):
        raise ConfigError(unknown_name("metric", f"train/{key}", [f"train/{one}" for one in known], at=_AT))


def _check_run(keeper: Checkpointer, run: Any, name: str) -> None:
    if type(run) in (Final, Once, StandaloneLastCheckpoint):
        if keeper.max_to_keep is None:
            return  # Only one is measured, which is plain to see, and the others stay to be measured later.
        every = (
            "StandaloneEveryCheckpoint()" if run.is_standalone else f"EveryNSteps({keeper.save_interval_steps or 1})"
        )
        raise ConfigError(
            f"{_AT}: {keeper.best_metric!r} is measured once ({type(run).__name__}), so there is nothing to choose "
            f"from, and max_to_keep={keeper.max_to_keep} would remove the rest. Use evals.{name}.run={every}, or "
            "max_to_keep=None."
        )
    if type(run) is EveryNSteps:
        _check_interval(keeper, run.n, at=f"evals.{name}.run.n", metric=f"{name!r} evaluates")


def _check_interval(keeper: Checkpointer, interval: int, *, at: str, metric: str) -> None:
    saves = keeper.save_interval_steps
    if saves is None:
        raise ConfigError(
            f"{_AT}: {keeper.best_metric!r} is measured by steps and checkpoints are saved by the clock, so no "
            f"save has it. Set checkpointer.save_interval_steps={interval}."
        )
    if interval % saves and saves % interval:
        raise ConfigError(
            f"{_AT}: {metric} every {interval} steps and checkpoints are saved every {saves}, so most saves have no "
            f"{keeper.best_metric!r} and most values no checkpoint. Use {at}={saves} (or another divisor or multiple), "
            f"or checkpointer.save_interval_steps={interval}."
        )
