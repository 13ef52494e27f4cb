"""Asking a running sweep, or one of its trials, to stop, from any process: `RUN/control.json`, read by every worker.

Requests are folded into the one file: a request for a trial is kept beside one for another.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from typing import Any

from kauldron_core import rundir

FILE = "control.json"
_logger = logging.getLogger(__name__)


def request_stop(run_dir: str | os.PathLike[str], *, reason: str) -> None:
    """Asks all trials of a run to save and end; the run goes on when it is started again."""
    rundir.write_json(_path(run_dir), {**_read(run_dir), "stop": True, "reason": reason})


def request_trial_stop(run_dir: str | os.PathLike[str], trial: str, *, reason: str) -> None:
    """Asks one trial to save and end for good; one that waits is not begun."""
    requests = _read(run_dir)
    rundir.write_json(_path(run_dir), {**requests, "trials": {**requests.get("trials", {}), trial: reason}})


def clear(run_dir: str | os.PathLike[str], *, ended: Collection[str] = ()) -> None:
    """Forgets earlier requests, but for those for single trials that have not ended; called by a driver that starts.

    Args:
      run_dir: The run directory.
      ended: Trials that have ended.
    """
    left = {trial: reason for trial, reason in stopped_trials(run_dir).items() if trial not in ended}
    if left:
        rundir.write_json(_path(run_dir), {"trials": left})
    else:
        _path(run_dir).unlink(missing_ok=True)


def is_stop_requested(run_dir: str | os.PathLike[str]) -> bool:
    """Returns whether the run was asked to stop."""
    return bool(_read(run_dir).get("stop"))


def stop_reason(run_dir: str | os.PathLike[str], trial: str | None = None) -> str | None:
    """Returns why the run, or this one trial, was asked to stop; None if it was not."""
    if trial is not None:
        return stopped_trials(run_dir).get(trial)
    requests = _read(run_dir)
    return str(requests.get("reason") or "asked to stop") if requests.get("stop") else None


def stopped_trials(run_dir: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the trials that were asked to stop, each with the reason."""
    return _read(run_dir).get("trials", {})


def _read(run_dir: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return rundir.read_json(_path(run_dir), rundir.formats.CONTROL)
    except FileNotFoundError:
        return {}
    except rundir.DamagedFile as error:
        _logger.warning("%s It asks for nothing.", error)
        return {}


def _path(run_dir: str | os.PathLike[str]):
    return rundir.RunDir(run_dir).path / FILE
