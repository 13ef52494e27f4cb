"""What can be said of the checkpoints of a run, for `kdr ckpt`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kauldron_core import ckpts, konfig, rundir
from kauldron_core.errors import ConfigError, listing, unknown_name
from pipelines.terminal import echo

_WORDS = ("latest", "best")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One checkpoint in a list.

    Attributes:
      step: Its step.
      num_bytes: Size of its files.
      saved_at: When it was saved, in seconds since 1970; None if it doesn't say.
      metrics: What was measured on it, inside training and outside; the one that tells the best comes first.
      kept: Why it is kept; empty if it goes with the next save.
    """

    step: int
    num_bytes: int
    saved_at: float | None
    metrics: dict[str, float]
    kept: list[str]


def checkpointer_of(trial: rundir.TrialDir) -> ckpts.Checkpointer:
    """Returns the checkpointer that the trial's config describes, the default one where it has none."""
    node = konfig.load(trial.config_path).get("checkpointer") if trial.exists() else None
    built = ckpts.Checkpointer() if node is None else konfig.resolve(node)
    if not isinstance(built, ckpts.Checkpointer):
        raise ConfigError(f"{trial.config_path}: checkpointer: a {type(built).__name__}, not a kd.ckpts.Checkpointer.")
    return _with_mode(dataclasses.replace(built, workdir=os.fspath(trial)), trial)


def entries(trial: rundir.TrialDir) -> list[Entry]:
    """Returns the checkpoints of a trial, oldest first."""
    checkpointer = checkpointer_of(trial)
    kept = checkpointer.reasons_to_keep()
    outside = rundir.read_eval_results(trial)
    found: list[Entry] = []
    for step, reasons in kept.items():
        path = ckpts.step_path(trial.checkpoints, step)
        metadata = ckpts.read_metadata(path)
        measured = metrics(step, metadata, outside)
        first = {name: value for name, value in measured.items() if name == checkpointer.best_metric}
        found.append(Entry(step, num_bytes(Path(path)), metadata.get("saved_at"), first | measured, reasons))
    return found


def metrics(
    step: int, metadata: Mapping[str, Any], outside: Mapping[tuple[str, int], rundir.Record]
) -> dict[str, float]:
    """Returns what was measured on a checkpoint, in training (its metadata) and outside (the trial's results)."""
    found = dict(metadata.get("metrics") or {})
    for (name, at), record in outside.items():
        if at == step and record.get("status") == "done":
            found |= {f"{name}/{key}": value for key, value in record["values"].items()}
    return found


def others(trial: rundir.TrialDir) -> list[Path]:
    """Returns what else lies in the folder of checkpoints under a checkpoint's name: set aside, unfinished, foreign."""
    if not trial.checkpoints.is_dir():
        return []
    return sorted(
        path for path in trial.checkpoints.iterdir() if path.name.startswith("ckpt_") and not ckpts.is_committed(path)
    )


def parse_step(
    text: str, trial: rundir.TrialDir, *, metric: str | None = None, mode: str | None = None, at: str = "STEP"
) -> int:
    """Returns the step that `text` means: a number, `latest` or `best`.

    Args:
      text: The text.
      trial: Whose checkpoints.
      metric: What `best` goes by; where unset what ranks the run, or that of the checkpointer.
      mode: Which end of it is best; where unset the metric says it.
      at: Where the text was written, for errors.

    Raises:
      ConfigError: If there is no such checkpoint; with the nearest.
    """
    steps = ckpts.all_steps(trial.checkpoints)
    if not steps:
        raise ConfigError(f"{trial.checkpoints}: there is no checkpoint.")
    if text == "latest":
        return steps[-1]
    if text == "best":
        return _best(trial, metric, mode)
    if text.isdecimal() and int(text) in steps:
        return int(text)
    available = [*map(str, steps), *_WORDS]
    if not text.isdecimal():
        raise ConfigError(unknown_name("step", text, available, at=at))
    nearest = min(steps, key=lambda step: abs(step - int(text)))
    raise ConfigError(f"{at}: unknown step {text!r}. Did you mean {nearest}? Available: {listing(available)}.")


def num_bytes(path: Path) -> int:
    """Returns the size of all files below `path`."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def arrays(metadata: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Returns path, shape and bytes of each array of a checkpoint."""
    saved: dict[str, str] = metadata.get("state") or {}
    return [(place, text, ckpts.spec_bytes(text)) for place, text in saved.items()]


def sums(rows: Sequence[tuple[str, str, int]]) -> dict[str, int]:
    """Returns the bytes of each part of the state."""
    total: dict[str, int] = {}
    for place, _, size in rows:
        part = place.partition(".")[0]
        total[part] = total.get(part, 0) + size
    return total


def _best(trial: rundir.TrialDir, metric: str | None, mode: str | None) -> int:
    """Returns the best checkpoint, and says by what it is."""
    from kauldron_core.train import best_checkpoint  # Brings all of training with it.

    best = best_checkpoint(trial, metric=metric, mode=mode, at="--metric")
    echo(f"step {best.step} is best by {best.ranking}", err=True)
    return best.step


def _with_mode(checkpointer: ckpts.Checkpointer, trial: rundir.TrialDir) -> ckpts.Checkpointer:
    """Returns a checkpointer that knows which end of its metric is best, or has no metric where nothing says it."""
    run, metric = trial.run(), checkpointer.best_metric
    if metric is None or checkpointer.mode is not None:
        return checkpointer
    sweep = run.readable_sweep if run is not None and run.exists() else {}
    directions = rundir.Directions.read(sweep.get("directions"))
    for (name, _), record in rundir.read_eval_results(trial).items():
        directions = directions.with_record(name, record)
    try:
        return dataclasses.replace(checkpointer, mode=directions.mode(metric, at="checkpointer.mode"))
    except ConfigError as error:
        echo(f"{trial.name}: no checkpoint is shown as best: {error}", err=True)
        return dataclasses.replace(checkpointer, best_metric=None, keep_best=None)
