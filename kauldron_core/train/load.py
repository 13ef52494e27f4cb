"""From the folder of a trial back to its trainer and state."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any, Literal

from kauldron_core import ckpts, rundir
from kauldron_core.errors import ConfigError, listing, unknown_name
from kauldron_core.forward import TrainState
from kauldron_core.sharding import fitted
from kauldron_core.train.directions import metric_directions
from kauldron_core.train.trainer import Trainer
from kauldron_core.train.trial_config import load_config, resolve_trial


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
      metric: `<evaluator>/<kind>/<name>`, such as `test/metrics/accuracy`; where unset that which ranks the trials of
        the sweep, or the one by which the checkpointer keeps the best.
      mode: Whether most or least of it is best; where unset the metric says it.

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
    return best_checkpoint(trial, metric=metric, mode=mode, known=metric_directions(trainer)).step


@dataclasses.dataclass(frozen=True)
class BestCheckpoint:
    """The checkpoint whose evaluation was best.

    Attributes:
      step: Its step.
      ranking: By what.
    """

    step: int
    ranking: rundir.Ranking


def best_step(trial: rundir.TrialDir, *, metric: str | None = None, mode: str | None = None, at: str = "metric") -> int:
    """Returns the step of the checkpoint whose evaluation was best; see `best_checkpoint`."""
    return best_checkpoint(trial, metric=metric, mode=mode, at=at).step


def best_checkpoint(
    trial: rundir.TrialDir,
    *,
    metric: str | None = None,
    mode: str | None = None,
    at: str = "metric",
    known: rundir.Directions | None = None,
) -> BestCheckpoint:
    """Returns the checkpoint whose evaluation was best; the earliest of equal ones.

    Args:
      trial: The trial.
      metric: What is looked at; where unset what ranks the trials of the run, or the one by which the checkpointer
        keeps the best. A training loss is none of these unless it was named.
      mode: Whether most or least of it is best; where unset the metric says it.
      at: What the user calls the metric, for errors.
      known: What is better of each metric, where more is known than the run says.

    Raises:
      ConfigError: If no metric is known, or which end of it is best, or no checkpoint has a finite value of it.
    """
    sweep, (values, recorded) = _sweep_of(trial), _measured(trial)
    if metric is not None and metric not in values:
        raise ConfigError(unknown_name("metric", metric, values, at=os.fspath(trial)))
    said = rundir.Directions.read(sweep.get("directions"))
    for others in (known, recorded):
        said = said.joined(others.known if others is not None else {})
    ranking = _ranking(trial, sweep, metric, mode, directions=said, at=at.replace("metric", "mode"))
    if ranking is None:
        raise ConfigError(
            f"{at}: unset, and neither the sweep (run.metric) nor the checkpointer (best_metric) names one. "
            f"Available: {listing(values)}."
        )
    if ranking.metric not in values:
        raise ConfigError(unknown_name("metric", ranking.metric, values, at=os.fspath(trial)))
    scores = values[ranking.metric]
    best = min(scores, key=lambda step: (*ranking.badness(scores[step]), step), default=None)
    if best is None or not math.isfinite(scores[best]):
        raise ConfigError(f"{os.fspath(trial)}: no checkpoint has a finite {ranking.metric!r}.")
    return BestCheckpoint(best, ranking)


def _ranking(
    trial: rundir.TrialDir, sweep: Mapping[str, Any], metric: str | None, mode: str | None, **known: Any
) -> rundir.Ranking | None:
    standing = rundir.read_ranking(sweep, metric=metric, mode=mode, **known)
    if metric is not None or (standing is not None and standing.reason != "training"):
        return standing
    keeper = (load_config(trial).get("checkpointer") if trial.exists() else None) or {}
    return rundir.read_ranking({}, metric=keeper.get("best_metric"), mode=mode or keeper.get("mode"), **known)


def _sweep_of(trial: rundir.TrialDir) -> dict[str, Any]:
    run = trial.run()
    return run.readable_sweep if run is not None and run.exists() else {}


def _measured(trial: rundir.TrialDir) -> tuple[dict[str, dict[int, float]], rundir.Directions]:
    """Returns value by checkpoint by full metric name, and what the records of evaluations say is better.

    They were measured in training, by evaluations inside of it or by those outside.
    """
    found: dict[str, dict[int, float]] = {}
    steps, said = ckpts.all_steps(trial.checkpoints), rundir.Directions()
    for step in steps:
        metadata = ckpts.read_metadata(ckpts.step_path(trial.checkpoints, step))
        for name, value in (metadata.get("metrics") or {}).items():
            found.setdefault(name, {})[step] = float(value)
    inline = [event for event in rundir.read_events(trial.events) if event["kind"] == "evaluated"]
    records = [(source, event["step"], values) for event in inline for source, values in [rundir.measured(event)]]
    for (name, step), record in rundir.read_eval_results(trial).items():
        records.append((name, step, record.get("values") or {}))
        said = said.with_record(name, record)
    for name, step, values in records:
        for key, value in values.items():
            found.setdefault(f"{name}/{key}", {}).update({step: value} if step in steps else {})
    return found, said
