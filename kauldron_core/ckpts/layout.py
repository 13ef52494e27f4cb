"""Where checkpoints lie and which of them count. Needs neither JAX nor Orbax, so anyone may look."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from etils import epath

from kauldron_core import rundir
from kauldron_core.ckpts.storage_errors import is_shortage
from kauldron_core.rundir import committed

STATE, DATA, METADATA = "state", "data", "metadata"
PARTS = (STATE, DATA, METADATA)
POINTER = committed.POINTER_FILE
"""Stands in for the state of a trial that was trained in a pack."""


def step_path(directory: str | os.PathLike[str], step: int) -> epath.Path:
    """Returns the folder of the checkpoint at `step`."""
    return epath.Path(directory) / f"ckpt_{step}"


def step_of(path: str | os.PathLike[str]) -> int:
    """Returns the step of the checkpoint in the folder `path`."""
    return int(epath.Path(path).name.removeprefix("ckpt_"))


def all_steps(directory: str | os.PathLike[str]) -> list[int]:
    """Returns the steps of the committed checkpoints, ascending. Other names in the folder are ignored."""
    return [step for step in _named_steps(directory) if is_committed(step_path(directory, step))]


def unfinished_steps(directory: str | os.PathLike[str]) -> list[int]:
    """Returns the steps whose name is taken by something that is no checkpoint: an empty folder, a file."""
    return [step for step in _named_steps(directory) if not is_committed(step_path(directory, step))]


def _named_steps(directory: str | os.PathLike[str]) -> list[int]:
    try:
        names = [path.name for path in epath.Path(directory).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(match[1]) for name in names if (match := committed.NAME.fullmatch(name)))


def latest_step(directory: str | os.PathLike[str]) -> int | None:
    """Returns the newest committed step, None if there is no checkpoint."""
    return max(all_steps(directory), default=None)


def is_committed(path: str | os.PathLike[str]) -> bool:
    """Returns whether the save of this checkpoint came to its end. It may have been damaged since."""
    path = epath.Path(path)
    if committed.NAME.fullmatch(path.name) is None:
        return False
    return is_file(path / committed.COMMIT_FILE) or is_file(path / POINTER) or _is_closed(path)


def is_file(path: epath.Path) -> bool:
    """Returns whether there is a file, and not a pipe, which `epath` takes for one."""
    return path.is_file() if "://" in os.fspath(path) else os.path.isfile(path)


def _is_closed(path: epath.Path) -> bool:
    """Returns whether one may not look into the folder; who reads it then says so, and takes no older one silently."""
    try:
        next(iter(path.iterdir()), None)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def missing_parts(path: str | os.PathLike[str]) -> list[str]:
    """Returns the parts that a committed checkpoint should have and has not."""
    path = epath.Path(path)
    parts = (POINTER, DATA, METADATA) if (path / POINTER).exists() else PARTS
    return [part for part in parts if not (path / part).exists()]


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Metadata of a checkpoint; empty if there is none that can be read."""
    try:
        return read_json(epath.Path(path) / METADATA / METADATA, rundir.formats.METADATA)
    except (OSError, ValueError) as error:
        if is_shortage(error):
            raise
        return {}


def read_json(path: epath.Path, check: Callable[[Any, str], None] | None = None) -> Any:
    """Returns the value of a JSON file of a checkpoint, which may lie in a bucket; see `rundir.read_json`."""
    return rundir.parse(read_bytes(path), path, check)


def read_bytes(path: epath.Path) -> bytes:
    """Content of a file of a checkpoint, which may lie in a bucket; see `rundir.read_bytes`."""
    return path.read_bytes() if "://" in os.fspath(path) else rundir.read_bytes(path)
