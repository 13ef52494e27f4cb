"""Runs code of a config file; an error in it becomes one line with its place in the file."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kauldron_core.errors import ConfigError, one_line

T = TypeVar("T")


def call_user(function: Callable[[], T], file: Path, name: str = "") -> T:
    """Returns what `function`, which runs code of `file`, returns.

    Args:
      function: What to call.
      file: The config file.
      name: Name of its function, for messages; empty for the file as a whole.

    Raises:
      ConfigError: In one line with the place, for whatever the code raises; the cause is kept.
    """
    where = f"in {name}(): " if name else ""
    try:
        return function()
    except SyntaxError as error:
        place = f"{error.filename}:{error.lineno}" if error.filename else str(file)
        raise ConfigError(f"{place}: {where}{one_line(error.msg)}") from error
    except ConfigError as error:
        raise ConfigError(f"{place_of(error, file)}: {where}{one_line(str(error))}") from error
    except Exception as error:  # Whatever the user's code raises is the user's to mend; the place matters.
        text = one_line(f"{type(error).__name__}: {error}")
        raise ConfigError(f"{place_of(error, file)}: {where}{text}") from error


def place_of(error: BaseException, file: Path) -> str:
    """Returns `FILE:LINE` of the innermost line of the file that an error passed through."""
    target = file.resolve()
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == target.name and Path(frame.filename).resolve() == target
    ]
    return f"{file}:{lines[-1]}" if lines else str(file)
