"""The words of a command line: where each came from, flag files spliced in, and what to do with a wrong one."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.overrides.refusal import refusal

_DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
"""The hyphen, and what editors, chats and PDF files make of it."""
_MAX_FLAGFILE_DEPTH = 10


@dataclass(frozen=True)
class Token:
    """One word of the command line, or one line of a flag file.

    Attributes:
      text: The word, as the shell passed it.
      place: `FILE:LINE` when it comes from a flag file.
      source: The word of the command line that named that file.
      is_guess: Whether it is what a name alone may have meant, and has to be found in the config.
    """

    text: str
    place: str = ""
    source: str = ""
    is_guess: bool = False

    @property
    def dashes(self) -> int:
        """Number of hyphens, or of characters that were meant as such, at the start."""
        return len(self.text) - len(self.text.lstrip(_DASHES))

    @property
    def is_word(self) -> bool:
        """Whether it has no dashes in front, or is a negative number."""
        return not self.dashes or is_number(self.text)


class Misread(Exception):
    """A word that cannot be read, with the words that would be right in its place.

    Attributes:
      at: Number of the first wrong word.
      count: How many words are wrong.
      what: What is wrong, without a full stop.
      instead: The right words; None when that cannot be known.
      available: Names that would have been accepted, where names are the matter.
      guess: The word that was meant if the config has such a path; tried before the others.
    """

    def __init__(
        self,
        at: int,
        what: str,
        instead: Sequence[str] | None = None,
        *,
        count: int = 1,
        available: Iterable[str] | None = None,
        guess: str = "",
    ) -> None:
        super().__init__(what)
        self.at, self.count, self.what = at, count, what
        self.instead = instead
        self.available, self.guess = available, guess

    def corrected(self, tokens: Sequence[Token]) -> list[Token] | None:
        """Returns the command line with the wrong words replaced."""
        if self.instead is None:
            return self.guessed(tokens)
        right = [replace(tokens[self.at], text=text) for text in self.instead]
        return [*tokens[: self.at], *right, *tokens[self.at + self.count :]]

    def guessed(self, tokens: Sequence[Token]) -> list[Token] | None:
        """Returns the command line with the guess, if there is one."""
        right = replace(tokens[self.at], text=self.guess, is_guess=True)
        return [*tokens[: self.at], right, *tokens[self.at + self.count :]] if self.guess else None


def is_number(text: str) -> bool:
    """Returns whether `text` starts as a negative number does (`-5`, `-1e-3]`, `-.5,`)."""
    return len(text) > 1 and text[0] == "-" and (text[1].isdigit() or (text[1] == "." and text[2:3].isdigit()))


def read_tokens(argv: Sequence[str], *, place: str = "", depth: int = 0) -> list[Token]:
    """Returns the words of `argv`, each `--flagfile=FILE` replaced by the lines of that file."""
    tokens: list[Token] = []
    for text in argv:
        if text.startswith("--flagfile="):
            tokens += [replace(one, source=text) for one in _flagfile(text.removeprefix("--flagfile="), place, depth)]
        else:
            tokens.append(Token(text, place))
    return tokens


def _flagfile(name: str, place: str, depth: int) -> list[Token]:
    """Returns the lines of a flag file: one flag each, blank lines and comments left out."""
    at = f"{place}: --flagfile={name}" if place else f"--flagfile={name}"
    if depth == _MAX_FLAGFILE_DEPTH:
        raise ConfigError(refusal(at, "flag files include each other without end"))
    try:
        lines = rundir.with_home(name, at=at).read_text(encoding="utf-8").splitlines()
    except ConfigError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(refusal(at, f"this flag file cannot be read ({reason})")) from error
    tokens: list[Token] = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and not text.startswith(("#", "//")):
            tokens += read_tokens([text], place=f"{name}:{number}", depth=depth + 1)
    return tokens


def command_text(program: str, tokens: Iterable[Token]) -> str:
    """Returns the command to type, quoted for the shell; flag files are named and their lines not repeated."""
    words: list[str] = []
    for token in tokens:
        word = token.source if token.place else token.text
        if not token.place or word not in words:
            words.append(word)
    return shlex.join([*program.split(), *words])
