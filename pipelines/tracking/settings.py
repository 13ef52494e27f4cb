"""What of a run directory becomes parameters: a trial's settings, its overrides, the sweep's axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kauldron_core import konfig, rundir

_ENDINGS = (".__qualname__", ".__const__")


def read_settings(config_path: Path) -> dict[str, Any]:
    """Returns all leaves of a trial's config by their paths, references replaced by what they point at.

    A call is named by its path alone: `optimizer` is `optax:adam`, beside `optimizer.learning_rate`.
    """
    leaves = konfig.flatten(konfig.load(config_path))
    return {_without_ending(path): value for path, value in leaves.items()}


def read_overrides(run: rundir.RunDir) -> dict[str, dict[str, Any]]:
    """Returns what tells each trial from the base config: values by path, by trial."""
    return {trial["name"]: dict(trial.get("overrides") or ()) for trial in run.sweep.get("trials") or ()}


def sweep_settings(run: rundir.RunDir) -> dict[str, str]:
    """Returns the parameters of the parent run: config file, command, and the values of each axis."""
    sweep = run.sweep
    settings = {key: str(sweep[key]) for key in ("config", "command") if key in sweep}
    axes: dict[str, dict[str, None]] = {}
    for overrides in read_overrides(run).values():
        for path, value in overrides.items():
            axes.setdefault(path, {})[repr(value)] = None
    return {**settings, **{f"sweep.{path}": f"[{', '.join(values)}]" for path, values in axes.items()}}


def _without_ending(path: str) -> str:
    for ending in _ENDINGS:
        path = path.removesuffix(ending)
    return path
