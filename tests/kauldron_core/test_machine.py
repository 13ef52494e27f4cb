"""What a machine refuses is found in whatever error it led to."""

from __future__ import annotations

import errno
import os

import pytest

from kauldron_core.machine import machine_fault

FULL = f"OSError: [Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}: '/runs/a'"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/runs/a"), "/runs/a: No space left on device"),
        (RuntimeError("database or disk is full"), "RuntimeError: database or disk is full"),
        (RuntimeError(f"Traceback (most recent call last):\n  File 'x', line 1, in f\n{FULL}\n"), FULL),
        (RuntimeError("Traceback (most recent call last):\nValueError: no such thing"), None),
        (None, None),
    ],
)
def test_the_line_that_says_it_is_told(error: BaseException | None, text: str | None) -> None:
    """F26: of a traceback of another process, which an error of Tune holds as text, its first words were shown."""
    fault = machine_fault(error)
    assert (fault.text if fault is not None else None) == text
