"""The one form in which overrides and command lines are refused: where, what is wrong, what to write, what there is."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable

from kauldron_core.errors import ConfigError, listing, one_line

_MAX_CORRECTIONS = 50


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


class Refused(ConfigError):
    """A value text that is refused; what was probably meant can be put into the text around it.

    Args:
      at: The flag in front of the equals sign (`--cfg.seed`).
      what: What is wrong, without a full stop.
      right: The value text that would be right.
      or_text: Whether quoting the value, to mean it as text, would be right as well.
      text: The value text that is refused.
      available: Every name that would have been accepted, where names are the matter.
      flag: The flag that the corrected command has, where it is another one than `at`.
    """

    def __init__(
        self,
        at: str,
        what: str,
        *,
        right: str | None = None,
        or_text: bool = False,
        text: str = "",
        available: Iterable[str] | None = None,
        flag: str = "",
    ) -> None:
        self.at, self.what, self.right, self.or_text, self.text = at, what, right, or_text, text
        self.flag = flag or at
        self.available = None if available is None else list(available)
        super().__init__(self._message())

    def within(self, at: str, before: str, after: str) -> Refused:
        """Returns the same refusal for a text of which this value was a part."""
        right = None if self.right is None else f"{before}{self.right}{after}"
        text = f"{before}{self.text}{after}"
        what = self.what
        if self.or_text and self.right is None:
            right = f"{before}{quoted(self.text)}{after}"
        return Refused(at, what, right=right, text=text, available=self.available)

    def tried(self, read: Callable[[str], object]) -> Refused:
        """Returns the same refusal with advice that `read` takes, corrected where need be; without any where it can't.

        Args:
          read: Reads a value text, and raises `ConfigError` where it does not take it. A form (`[VALUE, VALUE]`) stays.
        """
        right = self.right
        for _ in range(_MAX_CORRECTIONS):
            if right is None or "VALUE" in right:
                break
            try:
                read(right)
                break
            except Refused as error:
                right = error.right if self.flag == self.at else None  # Elsewhere it would no longer mean the same.
            except ConfigError:
                right = None
        else:
            right = None
        or_text = self.or_text and _is_taken(quoted(self.text), read)
        flag = self.flag if right is not None else self.at
        return Refused(
            self.at, self.what, right=right, or_text=or_text, text=self.text, available=self.available, flag=flag
        )

    def _message(self) -> str:
        rights = [] if self.right is None else [self.right]
        rights += [quoted(self.text)] if self.or_text else []
        write = " or, for the text, ".join(shlex.quote(f"{self.flag}={right}") for right in rights)
        if self.or_text and self.right is None:
            write = f"{write} (to keep the text)"
        return refusal(self.at, self.what, write=write, available=self.available)


def _is_taken(text: str, read: Callable[[str], object]) -> bool:
    try:
        read(text)
    except ConfigError:
        return False
    return True


def quoted(text: str) -> str:
    """Returns `text` as a Python string, with the quotes that need the least escaping in a shell."""
    literal = repr(text)
    return f'"{text}"' if literal == f"'{text}'" else literal
