"""The one form in which overrides and command lines are refused: where, what is wrong, what to write, what there is."""

from __future__ import annotations

from collections.abc import Iterable

from kauldron_core.errors import listing

_MAX_SHOWN = 80


def refusal(at: str, what: str, *, write: str = "", available: Iterable[str] | None = None) -> str:
    """Returns the one-line message.

    Args:
      at: Flag, config path or file line that is refused.
      what: What is wrong with it, without a full stop.
      write: The corrected text, already quoted for the shell.
      available: Every name that would have been accepted, where names are the matter.
    """
    parts = [f"{at}: {what}." if at else f"{what}."]
    if available is not None:
        parts.append(f"Available: {listing(available)}.")
    if write:
        # Last, so that no full stop follows what is to be copied.
        parts.append(f"Write: {write}")
    return one_line(" ".join(parts))


def shown(text: str) -> str:
    """Returns `text` quoted and cut to a length that fits a message."""
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")


def one_line(text: str) -> str:
    """Returns `text` with line breaks and other control characters spelled out."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
