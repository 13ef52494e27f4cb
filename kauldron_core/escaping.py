"""What may reach a terminal: text without control characters, and without values that are to be kept secret.

Names, errors and metrics come from files that anybody could have written. A control sequence in them would move the
cursor, set the clipboard or hide what is there; a bidirectional mark would show them as something else.
"""

from __future__ import annotations

import codecs
import re

from kauldron_core.masking import masked

_STYLE = re.compile(r"\x1b\[([0-9;]*)m")
_CUT = re.compile(r"(\x1b(\[[0-9;]*)?|\r)\Z")
_PLAIN_STYLES = frozenset({*range(8), *range(21, 28), *range(29, 50), *range(90, 108)})
"""Codes of colours, bold, underlined and so on; 8 would hide the text."""


def escaped(text: str, *, keep: str = "\n\t") -> str:
    """Returns `text` with every character that is not printable written as Python writes it: `\\x1b`, `\\u202e`.

    Args:
      text: The text.
      keep: Characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else _escape(letter) for letter in text)


def shown(text: str) -> str:
    """Returns `text` as it may be printed: escaped, and with secrets masked."""
    return escaped(masked(text))


class OutputFilter:
    """Passes on what a program printed: lines, tabs and plain colours; everything else is escaped.

    A carriage return ends a line, so that nothing is written over. A sequence or letter that is cut between two pieces
    waits for the rest.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def take(self, data: bytes | str, *, is_last: bool = False) -> str:
        """Text that may be printed now, of the next piece and of what waited for it."""
        text = self._rest + (data if isinstance(data, str) else self._decoder.decode(data, final=is_last))
        cut = None if is_last else _CUT.search(text)
        at = len(text) if cut is None else cut.start()
        text, self._rest = text[:at], text[at:]
        return _with_plain_styles(text.replace("\r\n", "\n").replace("\r", "\n"))


def _with_plain_styles(text: str) -> str:
    parts: list[str] = []
    end = 0
    for match in _STYLE.finditer(text):
        style = match[0] if _is_plain(match[1]) else escaped(match[0])
        parts += [shown(text[end : match.start()]), style]
        end = match.end()
    return "".join([*parts, shown(text[end:])])


def _is_plain(codes: str) -> bool:
    numbers = [int(code) if code else 0 for code in codes.split(";")]
    while numbers:
        first = numbers.pop(0)
        if first in (38, 48):  # One of 256 colours, or three parts of one, follows.
            size = {5: 2, 2: 4}.get(numbers[0] if numbers else -1, 0)
            if not size or len(numbers) < size or max(numbers[:size]) > 255:
                return False
            del numbers[:size]
        elif first not in _PLAIN_STYLES:
            return False
    return True


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
