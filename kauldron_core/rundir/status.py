"""The status of a trial: one small file, written by whoever runs the trial (the driver of a sweep)."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

from kauldron_core import masking
from kauldron_core.errors import unknown_name
from kauldron_core.rundir import atomic, formats, reading

STATUSES = ("queued", "running", "preempted", "pruned", "stopped", "diverged", "failed", "done")
TERMINAL = frozenset({"pruned", "stopped", "diverged", "failed", "done"})
"""What a trial ends with. Nothing overwrites these unless a retry was asked for."""

DAMAGED = "damaged"
"""What is said of a trial, or of an evaluation, whose file can't be read. No file says so."""

FILE = "status.json"
_FORMAT = formats.status(STATUSES)


def write_status(trial_dir: str | os.PathLike[str], status: str, *, retry: bool = False, **fields: Any) -> bool:
    """Sets the status of a trial and returns True, or returns False when a terminal one stands and stays.

    Args:
      trial_dir: The trial's folder; made if missing.
      status: One of `STATUSES`.
      retry: Replace a terminal status too: the user asked for the trial to run again.
      **fields: What else readers should know (`error`, `attempt`, `step`).

    Raises:
      ValueError: If there is no such status.
    """
    if status not in STATUSES:
        raise ValueError(unknown_name("status", status, STATUSES))
    path = pathlib.Path(trial_dir) / FILE
    current = read_status(trial_dir).get("status")
    if current in TERMINAL and current != status and not retry:
        return False
    atomic.make_folder(path.parent)
    atomic.write_json(path, {"status": status, "time_ms": time.time_ns() // 1_000_000, **_masked(fields)})
    return True


def _masked(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: masking.masked(value) if isinstance(value, str) else value for name, value in fields.items()}


def read_status(trial_dir: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the status record of a trial, `{"status": "queued"}` when it has none yet.

    Of a damaged file it is `{"status": "damaged", "error": ...}`: the trial counts as one that has not ended.
    """
    try:
        return reading.read_json(pathlib.Path(trial_dir) / FILE, _FORMAT)
    except FileNotFoundError:
        return {"status": "queued"}
    except reading.DamagedFile as error:
        return {"status": DAMAGED, "error": str(error)}
