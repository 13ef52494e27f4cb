"""What of a run directory becomes parameters: a trial's settings, its overrides, the sweep's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kauldron_core import konfig, rundir


def read_settings(config_path: Path) -> dict[str, Any]:
    """Returns all leaves of a trial's config by their paths, references replaced by what they point at."""
    return dict(konfig.flatten(konfig.load(config_path)))


def read_overrides(run: rundir.RunDir) -> dict[str, dict[str, Any]]:
    """Returns what tells each trial from the base config: values by path, by trial."""
    return {trial["name"]: dict(trial.get("overrides") or ()) for trial in run.sweep.get("trials") or ()}


def sweep_settings(run: rundir.RunDir) -> dict[str, str]:
    """Returns the parameters of the parent run: what of `sweep.json` is a plain value."""
    sweep: Mapping[str, Any] = run.sweep
    return {key: str(value) for key, value in sweep.items() if isinstance(value, str | int | float)}
