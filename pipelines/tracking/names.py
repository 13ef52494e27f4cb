"""Names and texts in a form that MLflow accepts, by one rule for parameters, metrics and tags.

MLflow allows letters, digits, `_ - . : /` and spaces in a name, at most 250 characters, and no name that changes when
it is read as a path (`a//b`, `../a`). The rule here:

1. `[0]` and `['x']` become `.0` and `.x`, so `layers[0].units` is `layers.0.units`;
2. `@` becomes `_at_` (`recall@5` is `recall_at_5`), every other character that is not allowed becomes `_`;
3. empty, `.` and `..` parts between slashes become `_`;
4. a name over 250 characters keeps its first 240 and gets a hash;
5. where two names of one run come out the same, the later one gets a hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

MAX_NAME = 250
MAX_PARAM = 6000
MAX_TAG = 8000

_INDEX = re.compile(r"\[\s*(['\"]?)([^\[\]]*?)\1\s*\]")
_FORBIDDEN = re.compile(r"[^\w\-.: /]")


def clean_name(name: str) -> str:
    """Returns `name` in a form that MLflow accepts; a name that it accepts already is returned as it is."""
    text = _INDEX.sub(lambda match: f".{match[2]}", name)
    text = _FORBIDDEN.sub("_", text.replace("@", "_at_"))
    text = "/".join("_" if part in ("", ".", "..") else part for part in text.split("/"))
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 10]}-{_digest(name)}"


def clean_text(text: str, limit: int = MAX_PARAM) -> str:
    """Returns `text`, cut to `limit` characters with a note of its real length at the end."""
    if len(text) <= limit:
        return text
    note = f" ... ({len(text)} characters; whole in config.json)"
    return text[: limit - len(note)] + note


class NameTable:
    """The names of one run: the same original always gives the same name, two originals never share one."""

    def __init__(self) -> None:
        self._by_original: dict[str, str] = {}
        self._owners: dict[str, str] = {}

    def __getitem__(self, original: str) -> str:
        if original not in self._by_original:
            self._by_original[original] = self._claim(original)
        return self._by_original[original]

    def _claim(self, original: str) -> str:
        name = clean_name(original)
        if self._owners.setdefault(name, original) != original:
            name = f"{name[: MAX_NAME - 10]}-{_digest(original)}"
            self._owners[name] = original
        return name


def as_params(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns settings by path as MLflow parameters: texts under clean names."""
    names = NameTable()
    return {names[path]: value if isinstance(value, str) else repr(value) for path, value in settings.items()}


def _digest(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:8]
