"""Reads the words `--cfg.PATH=TEXT`, `--sweep.PATH=TEXT`, `--run.PATH=TEXT` and `--args.NAME=TEXT`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kauldron_core import paths
from kauldron_core.errors import ConfigError, shown
from kauldron_core.konfig.overrides.splitting import is_unfinished, split_outside
from pipelines.cli.words.tokens import Misread, Token

ROOTS = ("cfg", "sweep", "run", "args")
"""What an override can start with: the config, an axis, the run spec, an argument of `get_config`."""

_FILE = re.compile(r"[^=]*\.(py|json)(:.*)?\Z", re.DOTALL)
_TYPOGRAPHIC_QUOTES = {
    "\u201c": "\u201d",
    "\u201e": "\u201c",
    "\u2018": "\u2019",
    "\u201a": "\u2018",
    "\u00ab": "\u00bb",
}


def is_config_file(text: str) -> bool:
    """Returns whether a word looks like `CONFIG.py`, `CONFIG.py:size=large` or `CONFIG.json`."""
    return _FILE.match(text) is not None


def split_root(name: str) -> tuple[str, str | None]:
    """Returns `cfg` and the path of `cfg.PATH`; the path is None when there is no dot or bracket."""
    match = re.match(r"([^.\[\s]*)([.\[])", name)
    if not match:
        return name, None
    return match[1], name[match.end() :] if match[2] == "." else name[match.start(2) :]


def has_word(tokens: Sequence[Token], at: int) -> bool:
    """Returns whether a word without dashes stands at `at`."""
    return at < len(tokens) and tokens[at].is_word


def without_value(tokens: Sequence[Token], at: int, flag: str, *, has_config: bool) -> Misread:
    """Returns the fault of `--key` without a value, corrected with the word that was meant as one."""
    what = "an option is one word, --key=value"
    end = at + 1
    if has_word(tokens, end) and tokens[end].text == "=":
        end += 1
    value = tokens[end].text if has_word(tokens, end) else ""
    if not value or (not has_config and is_config_file(value)):
        placeholder = "[VALUE, VALUE]" if flag.startswith("--sweep.") else "VALUE"
        return Misread(at, what, [f"{flag}={placeholder}"], count=end - at)
    return Misread(at, what, [f"{flag}={value.removeprefix('=')}"], count=end + 1 - at)


class OverrideWords:
    """Collects the overrides of a command line.

    Attributes:
      pairs: What was read, as (path, text) by root.
      notes: Remarks to show.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._seen: dict[tuple[str, str], int] = {}
        self.pairs: dict[str, list[tuple[str, str]]] = {root: [] for root in ROOTS}
        self.notes: list[str] = []

    def read(self, at: int, root: str, path: str, text: str | None, *, has_config: bool) -> None:
        """Reads the word at `at`, which was split into root, path and text.

        Raises:
          Misread: When it is wrong.
        """
        if not path.strip():
            raise Misread(at, "the path after the dot is missing", [f"--{root}.PATH={text or 'VALUE'}"])
        if text is None:
            raise without_value(self._tokens, at, f"--{root}.{path}", has_config=has_config)
        self._check_text(at, root, path, text, has_config)
        if root == "sweep":
            path = self._without_cfg(path)
        for single in split_outside(path, ","):
            self._check_path(at, root, single, text)
        self.pairs[root].append((path, text))

    def _check_path(self, at: int, root: str, path: str, text: str) -> None:
        try:
            canonical = paths.format(paths.parse(path))
        except ConfigError as error:
            raise Misread(at, str(error)) from None
        if not canonical:
            raise Misread(at, "the path is missing", [f"--{root}.PATH={text}"])
        if root == "args" and not canonical.isidentifier():
            raise Misread(at, "an argument of get_config is one name", [f"--args.NAME={text}"])
        self._check_twice(at, root, canonical)
        self._check_swept_too(at, root, canonical)
        self._seen[root, canonical] = at

    def _check_twice(self, at: int, root: str, path: str) -> None:
        """Refuses a path that is given twice, except a flag file's line that the command line replaces."""
        other = self._seen.get((root, path))
        if other is None or self._replaces(at, other, root, path):
            return
        what = f"{path} is given twice (first as {shown(self._tokens[other].text)}); keep one"
        if other == at:
            raise Misread(at, f"{path} is zipped with itself")
        if self._tokens[at].place:  # Which of the lines is wrong can't be known.
            raise Misread(at, what)
        kept = [token.text for token in self._tokens[other + 1 : at + 1]]
        raise Misread(other, what, kept, count=at - other + 1)

    def _check_swept_too(self, at: int, root: str, path: str) -> None:
        """Refuses one value for a path that is an axis as well."""
        if root not in ("cfg", "sweep"):
            return
        rival_root = "cfg" if root == "sweep" else "sweep"
        rival = self._seen.get((rival_root, path))
        if rival is not None and not self._replaces(at, rival, rival_root, path):
            drop = at if root == "cfg" else rival
            raise Misread(drop, f"{path} is swept too, so this one value would never be used", [])

    def _replaces(self, at: int, other: int, root: str, path: str) -> bool:
        """Drops a flag file's line that the command line replaces; returns whether it was one."""
        if not self._tokens[other].place or self._tokens[at].place:
            return False
        kept = [pair for pair in self.pairs[root] if _canonical(pair[0]) != path]
        has_replaced = len(kept) < len(self.pairs[root])
        self.pairs[root] = kept
        return has_replaced

    def _check_text(self, at: int, root: str, path: str, text: str, has_config: bool) -> None:
        flag = f"--{root}.{path.strip()}="
        if path != path.strip():
            raise Misread(at, "spaces around the equals sign", [flag + text.strip()])
        if not text.strip() and has_word(self._tokens, at + 1):
            value = self._tokens[at + 1].text
            if has_config or not is_config_file(value):
                raise Misread(at, "a space after the equals sign", [flag + value], count=2)
        if not text.strip() and root == "sweep":
            raise Misread(at, "an axis needs its values", [f"{flag}[VALUE, VALUE]"])
        if is_unfinished(text):
            self._join_pieces(at, flag, text)
        if root == "sweep" and (inner := _in_typographic_quotes(text)) is not None:
            raise Misread(at, "typographic quotes are no quotes to the shell", [flag + inner])

    def _join_pieces(self, at: int, flag: str, text: str) -> None:
        """Refuses a value with an open bracket or quote that the next words close: the shell cut it."""
        joined = text
        for end in range(at + 1, len(self._tokens)):
            piece = self._tokens[end].text
            if piece.startswith("--"):
                return
            joined += f" {piece}"
            if not is_unfinished(joined):
                right = _in_typographic_quotes(joined) or joined
                what = "the shell cut the value at its spaces; quote it"
                raise Misread(at, what, [flag + right], count=end + 1 - at)

    def _without_cfg(self, path: str) -> str:
        singles = split_outside(path, ",")
        short = [single.removeprefix("cfg.") for single in singles]
        if short != singles:
            self.notes.append(f"--sweep.{path}: the prefix cfg. is not needed; --sweep.{','.join(short)} is the same.")
        return ",".join(short)


def _in_typographic_quotes(text: str) -> str | None:
    closing = _TYPOGRAPHIC_QUOTES.get(text[:1])
    return text[1:-1] if closing and len(text) > 1 and text.endswith(closing) else None


def _canonical(path: str) -> str:
    try:
        return paths.format(paths.parse(path))
    except ConfigError:
        return path
