"""The errors a user sees, and the one form in which they are written.

An error is one line in four parts: where (config path or flag), what is wrong with the value, the closest
match, what was available.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_LISTED = 12
_MAX_SHOWN = 80


class ConfigError(ValueError):
    """A user's mistake in a config, an override or a flag. The command line prints it and exits with status 2."""


class DamagedFile(ConfigError):
    """A file of a run that does not hold what it should: cut, emptied, or of another making.

    Who looks at a whole run says so in one line, and goes on with the files beside it.
    """


class RunFailed(RuntimeError):
    """A run that was asked for correctly and did not succeed. The command line exits with status 1."""


def closest(name: str, available: Iterable[str]) -> str | None:
    """Returns the entry of `available` that `name` most likely meant, or None when nothing is near."""
    candidates = list(available)
    folded = {candidate.casefold(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


def listing(available: Iterable[str]) -> str:
    """Returns `available` as `a, b, c`, shortened when it is long."""
    names = [str(name) for name in available]
    if len(names) <= _MAX_LISTED:
        return ", ".join(names) or "nothing"
    return ", ".join(names[:_MAX_LISTED]) + f", and {len(names) - _MAX_LISTED} more"


def first_line(error: BaseException) -> str:
    """Returns the kind of an error and the first line of what it says."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error says, in XLA's words, that a device had too little memory."""
    return "RESOURCE_EXHAUSTED" in str(error)


def unknown_name(kind: str, name: str, available: Iterable[str], *, at: str = "") -> str:
    """Returns the message for a name that does not exist.

    Args:
      kind: What the name stands for, in the singular (`split`, `argument`).
      name: The name as the user wrote it.
      available: Every name that would have been accepted.
      at: Config path or flag where it was written.
    """
    names = [str(candidate) for candidate in available]
    place = f"{at}: " if at else ""
    match = closest(str(name), names)
    hint = f" Did you mean {match!r}?" if match else ""
    return f"{place}unknown {kind} {name!r}.{hint} Available: {listing(names)}."


def shown(text: str) -> str:
    """Returns `text` quoted and cut to a length that fits a message."""
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")


def one_line(text: str) -> str:
    """Returns `text` with line breaks and other control characters spelled out."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
