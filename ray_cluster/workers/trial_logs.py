"""Sends what a process prints into the log files of the trial that it runs."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from kauldron_core import rundir


@contextlib.contextmanager
def redirected_output(folder: str | os.PathLike[str], *, rank: int = 0) -> Iterator[None]:
    """Appends standard output and error of the whole process to `stdout.log` and `stderr.log` in `folder`.

    A process with another rank than 0 has files of its own, `stdout-1.log`. At the level of the system, so that what
    C++ and child processes print goes there too.
    """
    target = rundir.make_folder(folder)
    suffix = f"-{rank}" if rank else ""
    with _redirected(1, target / f"stdout{suffix}.log"), _redirected(2, target / f"stderr{suffix}.log"):
        yield


@contextlib.contextmanager
def copied_output(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Appends what Python prints in this process to those files, too; it still goes where it went.

    For a process that trains at somebody's terminal. What a Rich console shows there, its tables, is left out.
    """
    target = rundir.make_folder(folder)
    with (
        open(target / "stdout.log", "a", encoding="utf-8", buffering=1) as out,
        open(target / "stderr.log", "a", encoding="utf-8", buffering=1) as err,
        contextlib.redirect_stdout(cast("TextIO", _Copied(sys.stdout, out))),
        contextlib.redirect_stderr(cast("TextIO", _Copied(sys.stderr, err))),
    ):
        yield


class _Copied:
    """A stream that writes to another one, and to a log as long as that is open."""

    def __init__(self, stream: TextIO, log: TextIO):
        self._stream, self._log = stream, log

    @property
    def rich_proxied_file(self) -> TextIO:
        """Where a Rich console writes: it looks for this attribute."""
        return getattr(self._stream, "rich_proxied_file", self._stream)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):  # A full disk, or a log that is closed by now.
            self._log.write(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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
