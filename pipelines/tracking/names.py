"""Names and texts in a form that MLflow accepts. What becomes of a name depends on that name alone.

MLflow allows letters, digits, `_ - . : /` and spaces in a name, at most 250 characters, and no name that changes when
it is read as a path (`a//b`, `../a`). The rule here:

1. a name that is allowed stays as it is;
2. characters that are not are written as `_x..._` with their codes: `recall@5` is `recall_x40_5`, `a,b` is `a_x2c_b`;
3. so are the dots of `.` and `..` between slashes; nothing between slashes is `_x_`;
4. an underscore that would begin such a code is written as a code itself, so that every name can be turned back
   (`original_name`) and no two names become one;
5. a name over 250 characters keeps its first 233 and gets a hash;
6. in parameters, whose names are paths, `layers[0].units` is `layers.0.units`, which is the same path.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

MAX_NAME = 250
MAX_PARAM = 6000
MAX_TAG = 8000

_INDEX = re.compile(r"\[(\d+)\]")
_FORBIDDEN = re.compile(r"[^\w\-.: /]+")
_LIKE_A_CODE = re.compile(r"_(?=x[0-9a-f-]*(?:_|[^\w\-.: /]))")
_CODE = re.compile(r"_x([0-9a-f-]*)_")
_DIGEST_CHARS = 16


def clean_name(name: str) -> str:
    """Returns `name` in a form that MLflow accepts; one that it accepts already is returned as it is."""
    text = _FORBIDDEN.sub(lambda match: _code(match[0]), _LIKE_A_CODE.sub(_code("_"), name))
    text = "/".join(_code(part) if part in ("", ".", "..") else part for part in text.split("/"))
    text = f"{_code('.')}{text[1:]}" if text.startswith("..") else text
    return fitting_name(text, name)


def original_name(clean: str) -> str:
    """Returns the name that `clean_name` made `clean` of, if it was not too long."""
    return _CODE.sub(lambda match: "".join(chr(int(code, 16)) for code in match[1].split("-") if code), clean)


def fitting_name(clean: str, original: str | None = None) -> str:
    """Returns a clean name, cut where it is too long."""
    if len(clean) <= MAX_NAME:
        return clean
    digest = hashlib.sha1((original or clean).encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    return f"{clean[: MAX_NAME - _DIGEST_CHARS - 1]}-{digest[:_DIGEST_CHARS]}"


def parameter_name(path: str) -> str:
    """Returns the name of the parameter for a config path."""
    return clean_name(_INDEX.sub(r".\1", path))


def changed_names(names: Iterable[str]) -> dict[str, str]:
    """Returns the originals of the names that MLflow does not take as they are, by clean name."""
    return {clean: name for name in names if (clean := clean_name(name)) != name}


def clean_text(text: str, limit: int = MAX_PARAM) -> str:
    """Returns `text`, cut to `limit` characters with a note of its real length at the end."""
    if len(text) <= limit:
        return text
    note = f" ... ({len(text)} characters; whole in config.json)"
    return text[: limit - len(note)] + note


def as_params(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns settings by path as MLflow parameters: texts under clean names."""
    return {parameter_name(path): value if isinstance(value, str) else repr(value) for path, value in settings.items()}


def _code(text: str) -> str:
    return f"_x{'-'.join(f'{ord(char):x}' for char in text)}_"
