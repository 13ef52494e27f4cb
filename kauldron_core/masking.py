"""Keeps values that may be secret out of what is written and printed: those of `--run.env`, a password in an address.

What is recorded is masked where it is made, by its form (`mask_words`). Errors and lines on the terminal may hold a
value anywhere, so they are masked by content, as far as this process knows the values.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence

MASK = "***"
"""What stands in the place of a value."""

_LEAST = 6
"""Characters of the shortest value that is masked by its content: shorter ones, such as `1`, are parts of words."""

_VARIABLES = re.compile(r"--(run\.env|cfg\..*\brun_spec\.env)\b")
_RUN_SPEC = re.compile(r"--cfg\..*\b(run_spec|stages)\b")
_NOT_IN_VALUES = re.compile(r"[{}\[\](),'\"\s]+")

_values: dict[str, None] = {}


def keep_secret(*values: str) -> None:
    """Masks these values in whatever this process says from now on."""
    _values.update(dict.fromkeys(value for value in values if len(value) >= _LEAST and value != MASK))


def masked(text: str) -> str:
    """Returns `text` with all values that are to be kept secret masked."""
    for value in sorted(_values, key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


def mask_words(words: Sequence[str]) -> list[str]:
    """Returns the words of a command without the values of variables: `--run.env={"NAME": "***"}`."""
    return [_mask_word(word) for word in words]


def keep_words_secret(words: Sequence[str]) -> None:
    """Masks the values of variables in the words of a command, also in words that can't be read, from now on."""
    for at, word in enumerate(words):
        key, equals, text = word.partition("=")
        if _VARIABLES.match(key):
            keep_secret(*_values_in(text if equals else " ".join(words[at + 1 : at + 2])))
        elif _RUN_SPEC.match(key) and "env" in text:
            keep_secret(*_values_in(text.partition("env")[2]))


def _mask_word(word: str) -> str:
    key, equals, text = word.partition("=")
    if not equals:
        return word
    if _VARIABLES.match(key):
        return f"{key}={MASK if key.rpartition('.')[2] != 'env' else _mask_mapping(text)}"
    return f"{key}={MASK}" if _RUN_SPEC.match(key) and re.search(r"\benv\b", text) else word


def _mask_mapping(text: str) -> str:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return MASK
    return json.dumps({str(name): MASK for name in found}) if isinstance(found, dict) else MASK


def _values_in(text: str) -> Iterator[str]:
    """Yields what may be values in the text of a mapping, however it is written."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if isinstance(found, dict):
        yield from (str(value) for value in found.values())
        return
    parts = [part for part in _NOT_IN_VALUES.split(text) if part]
    for part in parts:
        if not part.endswith((":", "=")):
            yield re.split(r"[=:]", part, maxsplit=1)[-1]
            yield part
