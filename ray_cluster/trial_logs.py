"""Sends what a process prints into the log files of the trial that it runs."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def redirected_output(folder: str | os.PathLike[str], *, rank: int = 0) -> Iterator[None]:
    """Appends standard output and error of the whole process to `stdout.log` and `stderr.log` in `folder`.

    A process with another rank than 0 has files of its own, `stdout-1.log`. At the level of the system, so that what
    C++ and child processes print goes there too.
    """
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    suffix = f"-{rank}" if rank else ""
    with _redirected(1, target / f"stdout{suffix}.log"), _redirected(2, target / f"stderr{suffix}.log"):
        yield


@contextlib.contextmanager
def _redirected(descriptor: int, path: pathlib.Path) -> Iterator[None]:
    _flush()
    kept = os.dup(descriptor)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
    try:
        os.dup2(log, descriptor)
        yield
    finally:
        _flush()
        os.dup2(kept, descriptor)
        os.close(kept)
        os.close(log)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A stream that somebody closed has nothing left to lose.
        with contextlib.suppress(ValueError):
            stream.flush()
