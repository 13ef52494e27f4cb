"""Where a node of a config was written: the file and line that an error about it shows."""

from __future__ import annotations

import sys
from typing import NamedTuple

_PREFIXES = ("kauldron_core.konfig", "kauldron_core.sweeps", "copy", "contextlib", "functools")


class Origin(NamedTuple):
    """A file and a line (0 when the node came from a file as a whole)."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def caller() -> Origin | None:
    """Returns the innermost line of code that is not part of konfig."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith(_PREFIXES):
            return Origin(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None
