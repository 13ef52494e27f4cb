"""What the errors of Orbax, TensorStore and the operating system say."""

from __future__ import annotations

_SHORTAGES = ("resource_exhausted", "out of memory", "cannot allocate memory", "too many open files")
_HEAD, _TAIL = 120, 140


def cause_of(error: BaseException) -> str:
    """Returns the first line of an error; of a long one the start, and the end where the system's own words are."""
    line = (str(error) or type(error).__name__).splitlines()[0]
    return line if len(line) <= _HEAD + _TAIL else f"{line[:_HEAD]} ... {line[-_TAIL:]}"


def is_shortage(error: Exception) -> bool:
    """Returns whether an error tells of what this process lacks, memory or open files, and not of the checkpoint.

    To take it for damage would be to train again from an older checkpoint.
    """
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in text for sign in _SHORTAGES)
