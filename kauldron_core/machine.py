"""What a machine refuses: no space, no permission, a file system that is gone. Told in one line, and not as a fault."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass

_USERS_TO_MEND = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR),
    *(errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP),
}
_WORDS = re.compile(
    "|".join(
        (
            *(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)),
            *(os.strerror(number) for number in (errno.EIO, errno.ESTALE, errno.EMFILE)),
            *("database or disk is full", "attempt to write a readonly database"),
        )
    ),
    re.IGNORECASE,
)
_MAX_SHOWN = 300


@dataclass(frozen=True)
class MachineFault:
    """What a machine refused.

    Attributes:
      text: In one line: the file and the system's words.
      is_mistake: Whether another place or other permissions mend it; else it is a matter of the machine, and of later.
      notes: What was added to the error: what was kept, how to go on.
    """

    text: str
    is_mistake: bool
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((f"{self.text}.", *self.notes))


def machine_fault(error: BaseException | None) -> MachineFault | None:
    """Resource that the machine refused, which led to an error; None if the fault is in the code.

    Libraries that write files tell of it in errors of their own, with the system's words in the text.
    """
    notes: list[str] = []
    while error is not None:
        notes += [note for note in getattr(error, "__notes__", ()) if "JAX" not in note]
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError):
            places = [os.fsdecode(one) for one in (error.filename, error.filename2) if isinstance(one, (str, bytes))]
            text = ": ".join([" -> ".join(places), str(error.strerror)] if places else [str(error.strerror)])
            return MachineFault(_short(text), error.errno in _USERS_TO_MEND, tuple(notes))
        if _WORDS.search(str(error)):
            return MachineFault(_short(_line_with_words(error)), False, tuple(notes))
        error = error.__cause__
    return None


def _line_with_words(error: BaseException) -> str:
    """Returns the line of an error's text that says what was refused: the text may be another process's traceback."""
    lines = str(error).strip().splitlines()
    last = next(line.strip() for line in reversed(lines) if _WORDS.search(line))
    return last if len(lines) > 1 else f"{type(error).__name__}: {last}"


def _short(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _MAX_SHOWN else f"{line[:_MAX_SHOWN]}..."
