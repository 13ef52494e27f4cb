"""Reads the JSON files of a run. Anybody may have written them, and a power cut may have cut them.

Every file is read here, against what its kind has to hold (`formats`), within bounds of size and depth. What does not
fit is a `DamagedFile`: whoever looks at a run says so in one line, and goes on with the files beside it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Any

from kauldron_core.errors import DamagedFile
from kauldron_core.rundir import json_text

MAX_BYTES = 1 << 26
"""Largest file that is read; `sweep.json` of a hundred thousand trials has half of it."""
MAX_DEPTH = 64
"""Deepest nesting that is read, as in configs."""

_OF_THIS_PROCESS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM)
"""What this process lacks, or may not do, says nothing about the file."""

Check = Callable[[Any, str], None]
"""Raises `Misfit` where a value is not what it has to be; the text is its place in the file."""


class Misfit(Exception):
    """A part of a file that is not what it has to be; the text says which and why."""


def read_json(path: str | os.PathLike[str], check: Check | None = None, *, max_bytes: int = MAX_BYTES) -> Any:
    """Returns the value of the JSON file `path`.

    Args:
      path: The file.
      check: What it has to hold.
      max_bytes: A larger one is not read.

    Raises:
      FileNotFoundError: If there is no such file.
      DamagedFile: If it can't be read, is not JSON, too large, nested too deep, or `check` refuses it; in one line that
        starts with the path.
    """
    return parse(read_bytes(path, max_bytes=max_bytes), path, check)


def read_bytes(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> bytes:
    """Content of the file `path`, if it is a file, and not too large.

    Raises:
      FileNotFoundError: If there is no such file.
      DamagedFile: If it is something else, or can't be read.
      PermissionError: If this user may not read it.
    """
    try:
        # Not to wait for the other end where a pipe has the name of a file.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise _damaged(path, "it is no file")
            if found.st_size > max_bytes:
                raise _damaged(path, f"{found.st_size} bytes are more than the {max_bytes} that are read")
            return file.read(max_bytes)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(error.errno, error.strerror, os.fspath(path)) from None
    except (OSError, ValueError) as error:
        if isinstance(error, DamagedFile) or getattr(error, "errno", None) in _OF_THIS_PROCESS:
            raise
        raise _damaged(path, f"it can't be read ({getattr(error, 'strerror', None) or error})") from error


def parse(data: bytes, path: str | os.PathLike[str], check: Check | None = None) -> Any:
    """Returns the value of JSON text from the file `path`; see `read_json`."""
    try:
        value = json_text.loads(data)
    except (ValueError, RecursionError) as error:
        what = "it is empty" if not data.strip() else f"it is not JSON ({_shortly(error)})"
        raise _damaged(path, what) from None
    try:
        _check_depth(value)
        if check is not None:
            check(value, "")
    except Misfit as misfit:
        raise _damaged(path, str(misfit)) from None
    return value


def _check_depth(value: Any) -> None:
    """Refuses what is nested too deep for those who walk over it."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        if not inner:
            return
        level = inner
    raise Misfit(f"it is nested deeper than {MAX_DEPTH} levels")


def _damaged(path: str | os.PathLike[str], what: str) -> DamagedFile:
    return DamagedFile(f"{os.fspath(path)}: damaged, {what}.")


def _shortly(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error).rstrip(".")[:100]
