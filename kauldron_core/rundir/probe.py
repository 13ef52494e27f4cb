"""Whether this node sees the run directory that the driver means, and may write there."""

from __future__ import annotations

import os
import pathlib
import time

from kauldron_core.errors import RunFailed
from kauldron_core.rundir import atomic

FILE = ".probe"
TIMEOUT_S = 10.0


def write_probe(run_dir: str | os.PathLike[str]) -> str:
    """Writes a new random token into the run directory and returns it, to be handed to every actor.

    Raises:
      OSError: If the file system can't do what a run directory needs (a second name for a file, a synced rename).
    """
    token = os.urandom(16).hex()
    folder = atomic.make_folder(run_dir)
    # `link` is what file systems that are not POSIX lack; a lease would fail in mid-run.
    trial = folder / f"{FILE}-{token}"
    atomic.create_exclusive(trial, token)
    os.replace(trial, folder / FILE)
    atomic.sync_folder(folder)
    return token


def check_probe(run_dir: str | os.PathLike[str], token: str, *, timeout_s: float = TIMEOUT_S) -> None:
    """Returns if this node reads the driver's token in `run_dir` and can write there.

    Args:
      run_dir: The run directory as the driver spells it.
      token: What `write_probe` gave the driver.
      timeout_s: How long to wait for it; network file systems show a new file late.

    Raises:
      RunFailed: If not; the message names this node and the folder.
    """
    folder = pathlib.Path(run_dir)
    deadline = time.monotonic() + timeout_s
    while _read(folder / FILE) != token:
        if time.monotonic() >= deadline:
            raise RunFailed(_message(folder, "does not see what the driver wrote there"))
        time.sleep(0.1)
    try:
        trial = folder / f"{FILE}-{os.urandom(8).hex()}"
        atomic.write_atomic(trial, token)
        trial.unlink()
    except OSError as error:
        raise RunFailed(_message(folder, f"can't write there ({error.strerror})")) from error


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def _message(folder: pathlib.Path, fault: str) -> str:
    return f"{folder}: node {os.uname().nodename} {fault}. Put --run.root on a file system that all nodes share."
