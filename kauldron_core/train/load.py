"""From the folder of a trial back to its trainer and state."""

from __future__ import annotations

import math
import os
from typing import Any, Literal

from kauldron_core import ckpts, rundir
from kauldron_core.errors import ConfigError, listing, unknown_name
from kauldron_core.forward import TrainState
from kauldron_core.sharding import fitted
from kauldron_core.train.trainer import Trainer
from kauldron_core.train.trial_config import resolve_trial


def load_trial(trial_dir: str | os.PathLike[str]) -> Trainer:
    """Returns the trainer of the trial, with the folder as its workdir.

    The config is data from a disk: it may only name what `konfig` allows, see `konfig.trust`.

    Raises:
      ConfigError: If the folder is not a trial's.
    """
    trainer = resolve_trial(trial_dir)
    if not isinstance(trainer, Trainer):
        raise ConfigError(
            f"{rundir.TrialDir(trial_dir).config_path}: describes a {type(trainer).__name__}, not a kd.train.Trainer."
        )
    return trainer


def load_run(
    trial_dir: str | os.PathLike[str],
    *,
    step: int | Literal["latest", "best"] = "latest",
    metric: str | None = None,
    mode: Literal["max", "min"] | None = None,
) -> tuple[Trainer, TrainState]:
    """Returns the trainer of the trial and its state, on the devices that are there.

    Args:
      trial_dir: The folder of the trial, or of a run with one trial.
      step: Which checkpoint. `best` is the one whose evaluation was best by `metric`.
      metric: `<evaluator>/<kind>/<name>`, such as `test/metrics/accuracy`; where unset that of the sweep, or the one
        by which the checkpointer keeps the best.
      mode: Whether more or less is better; where unset likewise.

    Raises:
      ConfigError: If the folder is not a trial's, or nothing says which checkpoint is best.
      FileNotFoundError: If there is no such checkpoint.
    """
    trial = rundir.find_one_trial(trial_dir)
    trainer = fitted(load_trial(trial))
    if step == "best":
        step = _best_step(trainer, trial, metric=metric, mode=mode)
    number = -1 if step == "latest" else step
    return trainer, ckpts.load(trial.checkpoints, trainer.state_specs, step=number).state


def _best_step(trainer: Trainer, trial: rundir.TrialDir, *, metric: str | None, mode: str | None) -> int:
    keeper = trainer.checkpointer
    if metric is None and keeper is not None and keeper.best_metric and not _sweep_of(trial).get("metric"):
        metric, mode = keeper.best_metric, mode or keeper.mode
    return best_step(trial, metric=metric, mode=mode)


def best_step(trial: rundir.TrialDir, *, metric: str | None = None, mode: str | None = None, at: str = "metric") -> int:
    """Returns the step of the checkpoint whose evaluation was best; the earliest of equal ones.

    Args:
      trial: The trial.
      metric: What is looked at; that of the sweep where unset.
      mode: Whether more or less of it is better; that of the sweep where unset.
      at: What the user calls the metric, for errors.

    Raises:
      ConfigError: If no metric is known, or no checkpoint has a finite value of it.
    """
    sweep = _sweep_of(trial)
    metric = metric or sweep.get("metric")
    mode = mode or sweep.get("mode") or "max"
    values = _evaluations(trial)
    if metric is None:
        raise ConfigError(
            f"{at}: unset, and neither the sweep (run.metric) nor the checkpointer (best_metric) names one. "
            f"Available: {listing(values)}."
        )
    if metric not in values:
        raise ConfigError(unknown_name("metric", metric, values, at=os.fspath(trial)))
    steps = set(ckpts.all_steps(trial.checkpoints))
    scores = {step: value for step, value in values[metric].items() if step in steps and math.isfinite(value)}
    if not scores:
        raise ConfigError(f"{os.fspath(trial)}: no checkpoint has a finite {metric!r}.")
    sign = -1 if mode == "max" else 1
    return min(scores, key=lambda step: (sign * scores[step], step))


def _sweep_of(trial: rundir.TrialDir) -> dict[str, Any]:
    run = trial.run()
    return run.sweep if run is not None and run.exists() else {}


def _evaluations(trial: rundir.TrialDir) -> dict[str, dict[int, float]]:
    """Returns value by step by full metric name, of evaluations inside training and outside of it."""
    found: dict[str, dict[int, float]] = {}
    inline = [event for event in rundir.read_events(trial.events) if event["kind"] == "evaluated"]
    records = [(event["split"], event["step"], event["values"]) for event in inline]
    for (name, step), record in rundir.read_eval_results(trial).items():
        records.append((name, step, record.get("values") or {}))
    for name, step, values in records:
        for key, value in values.items():
            found.setdefault(f"{name}/{key}", {})[step] = value
    return found
