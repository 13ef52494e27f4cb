"""Where checkpoints lie and which of them count. Needs neither JAX nor Orbax, so anyone may look."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from etils import epath

STATE, DATA, METADATA = "state", "data", "metadata"
PARTS = (STATE, DATA, METADATA)

_NAME = re.compile(r"ckpt_(0|[1-9]\d*)")
# Orbax writes it before it renames a finished checkpoint from its temporary name to the final one.
_COMMIT_FILE = "_CHECKPOINT_METADATA"


def step_path(directory: str | os.PathLike[str], step: int) -> epath.Path:
    """Returns the folder of the checkpoint at `step`."""
    return epath.Path(directory) / f"ckpt_{step}"


def step_of(path: str | os.PathLike[str]) -> int:
    """Returns the step of the checkpoint in the folder `path`."""
    return int(epath.Path(path).name.removeprefix("ckpt_"))


def all_steps(directory: str | os.PathLike[str]) -> list[int]:
    """Returns the steps of the committed checkpoints, ascending. Other names in the folder are ignored."""
    try:
        names = [path.name for path in epath.Path(directory).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    steps = [int(match[1]) for name in names if (match := _NAME.fullmatch(name))]
    return sorted(step for step in steps if is_committed(step_path(directory, step)))


def latest_step(directory: str | os.PathLike[str]) -> int | None:
    """Returns the newest committed step, None if there is no checkpoint."""
    return max(all_steps(directory), default=None)


def is_committed(path: str | os.PathLike[str]) -> bool:
    """Returns whether the save of this checkpoint came to its end. It may have been damaged since."""
    path = epath.Path(path)
    try:
        return _NAME.fullmatch(path.name) is not None and (path / _COMMIT_FILE).exists()
    except PermissionError:
        return True  # Something is there; who reads it says why it can't be read, and takes no older one silently.


def missing_parts(path: str | os.PathLike[str]) -> list[str]:
    """Returns the parts that a committed checkpoint should have and has not."""
    return [part for part in PARTS if not (epath.Path(path) / part).exists()]


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns what a checkpoint says of itself; empty if it says nothing that can be read."""
    try:
        found = json.loads((epath.Path(path) / METADATA / METADATA).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
