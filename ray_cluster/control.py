"""Asking a running sweep to stop, from any process: `RUN/control.json`, which every supervisor reads."""

from __future__ import annotations

import os
from typing import Any

from kauldron_core import rundir

FILE = "control.json"


def request_stop(run_dir: str | os.PathLike[str], *, reason: str) -> None:
    """Asks all trials of a run to save and end."""
    rundir.write_json(_path(run_dir), {"stop": True, "reason": reason})


def clear(run_dir: str | os.PathLike[str]) -> None:
    """Forgets earlier requests; called by a driver that starts."""
    _path(run_dir).unlink(missing_ok=True)


def is_stop_requested(run_dir: str | os.PathLike[str]) -> bool:
    """Returns whether the run was asked to stop."""
    return bool(_read(run_dir).get("stop"))


def _read(run_dir: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return rundir.read_json(_path(run_dir))
    except FileNotFoundError:
        return {}


def _path(run_dir: str | os.PathLike[str]):
    return rundir.RunDir(run_dir).path / FILE
