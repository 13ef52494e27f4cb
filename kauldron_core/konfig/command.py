"""Sorts the words of a command line: the config, overrides, axes, the run spec's overrides, and what Click gets.

Only `--key=value` is read. Whatever else a person types is refused with the command that they meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kauldron_core import paths
from kauldron_core.errors import ConfigError, closest
from kauldron_core.konfig.refusal import refusal, shown
from kauldron_core.konfig.splitting import is_unfinished, partition_key, split_outside
from kauldron_core.konfig.tokens import Misread, Token, command_text, read_tokens

Pairs: TypeAlias = tuple[tuple[str, str], ...]

ROOTS = ("cfg", "sweep", "run", "args")
"""What an override can start with: the config, an axis, the run spec, an argument of `get_config`."""

_OTHER_ROOT_NAMES = {"config": "cfg", "conf": "cfg", "c": "cfg", "arg": "args", "axis": "sweep", "xp": "run"}
_OWN_NAMES = ("cfg", "sweep", "trials", "flagfile")
_FILE = re.compile(r"[^=]*\.(py|json)(:.*)?\Z", re.DOTALL)
_BARE_OVERRIDE = re.compile(r"[\w.\[\]'\"-]+\s*=", re.DOTALL)
_SMART_QUOTES = {"\u201c": "\u201d", "\u201e": "\u201c", "\u2018": "\u2019", "\u201a": "\u2018", "\u00ab": "\u00bb"}
_MAX_CORRECTIONS = 20


@dataclass(frozen=True)
class Command:
    """A command line, sorted.

    Attributes:
      config: The config file, as written (`digits.py:size=large`).
      cfg: Override texts of the config as (path, text), in the order given.
      sweep: Axis texts as (path, text); several paths with commas between them are a zip.
      run: Override texts of the run spec.
      args: Argument texts of `get_config`.
      trials: File with one trial a line.
      sweeps: Names of the config file's sweep functions; the empty name is `sweep()`.
      words: Words after the config, for the commands that take more than one.
      rest: What is left for Click.
      notes: Remarks to show, such as a prefix that was not needed.
    """

    config: str | None = None
    cfg: Pairs = ()
    sweep: Pairs = ()
    run: Pairs = ()
    args: Mapping[str, str] = field(default_factory=dict[str, str])
    trials: str | None = None
    sweeps: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_command(
    argv: Sequence[str],
    *,
    program: str = "kdr sweep",
    flags: Iterable[str] | None = None,
    options: Iterable[str] | None = None,
    max_words: int = 1,
) -> Command:
    """Returns the words of `argv` sorted.

    Args:
      argv: The words after the program's name.
      program: The program's name, for the corrected command in messages.
      flags: Options of the program that take no value (`--dry-run`).
      options: Options of the program that take one (`--root`). Without `flags` and `options` every undotted option
        is left to Click unread.
      max_words: How many words without dashes there may be, the config included.

    Raises:
      ConfigError: For the first word that cannot be read; the message holds the corrected command.
    """
    if "--help" in argv:
        return Command(rest=("--help",))
    known = None if flags is None and options is None else (frozenset(flags or ()), frozenset(options or ()))
    tokens = read_tokens(argv)
    try:
        return _Sorter(tokens, known, max_words).sort()
    except Misread as fault:
        corrected = _correct(tokens, fault, known, max_words)
        raise ConfigError(_message(tokens, fault, corrected, program)) from None


def _correct(
    tokens: list[Token], fault: Misread, known: tuple[frozenset[str], frozenset[str]] | None, max_words: int
) -> list[Token] | None:
    """Returns the command line with all its faults corrected, so that the user need not come back for each."""
    corrected = fault.corrected(tokens)
    for _ in range(_MAX_CORRECTIONS):
        if corrected is None:
            return None
        try:
            _Sorter(corrected, known, max_words).sort()
            return corrected
        except Misread as next_fault:
            corrected = next_fault.corrected(corrected)
    return None


def _message(tokens: list[Token], fault: Misread, corrected: list[Token] | None, program: str) -> str:
    wrong = tokens[fault.at : fault.at + fault.count]
    at = " ".join(token.text for token in wrong)
    at = at if len(at) <= 200 else f"{at[:200]}..."
    if wrong[0].place:
        at = f"{wrong[0].place}: {at}"
        write = " ".join(fault.instead or ())
    else:
        write = command_text(program, corrected) if corrected is not None else ""
    return refusal(at, fault.what, write=write, available=fault.available)


class _Sorter:
    """Reads words one after the other; raises `Misread` at the first that is wrong."""

    def __init__(
        self, tokens: Sequence[Token], known: tuple[frozenset[str], frozenset[str]] | None, max_words: int
    ) -> None:
        self.tokens = tokens
        self.known = known
        self.max_words = max_words
        self.config: str | None = None
        self.pairs: dict[str, list[tuple[str, str]]] = {root: [] for root in ROOTS}
        self.trials: str | None = None
        self.sweeps: list[str] = []
        self.words: list[str] = []
        self.rest: list[str] = []
        self.notes: list[str] = []
        self.seen: dict[tuple[str, str], int] = {}

    def sort(self) -> Command:
        for at, token in enumerate(self.tokens):
            if token.is_word:
                self._word(at, token.text)
            else:
                self._flag(at, token)
        return Command(
            config=self.config,
            cfg=tuple(self.pairs["cfg"]),
            sweep=tuple(self.pairs["sweep"]),
            run=tuple(self.pairs["run"]),
            args=dict(self.pairs["args"]),
            trials=self.trials,
            sweeps=tuple(self.sweeps),
            words=tuple(self.words),
            rest=tuple(self.rest),
            notes=tuple(self.notes),
        )

    # Words

    def _word(self, at: int, text: str) -> None:
        if not text.strip():
            raise Misread(at, "an empty word (an unset shell variable?)", [])
        if _BARE_OVERRIDE.match(text) and not _FILE.match(text.partition("=")[0]):
            root = re.split(r"[.\[=\s]", text, maxsplit=1)[0]
            prefix = "--" if root in (*ROOTS, *_OWN_NAMES) else "--cfg."
            raise Misread(at, "an override starts with two dashes", [prefix + text])
        if self.config is None:
            self.config = text
        elif 1 + len(self.words) < self.max_words:
            self.words.append(text)
        else:
            self._stray(at, text)

    def _stray(self, at: int, text: str) -> None:
        """Refuses a word that has no place, with the most likely one."""
        before = self.tokens[at - 1] if at else None
        if before and before.text.startswith(tuple(f"--{root}." for root in ROOTS)) and "=" in before.text:
            joined = f"{before.text} {text}" if not before.text.endswith("=") else before.text + text
            what = f"the shell cut the value at a space, and {shown(text)} has no place; quote it"
            raise Misread(at - 1, what, [joined], count=2)
        if _FILE.match(text):
            raise Misread(at, f"there are two configs, {shown(self.config or '')} and {shown(text)}", [])
        names = [*self.known[0], *self.known[1]] if self.known else []
        if match := closest(text, [name.lstrip("-") for name in names]):
            raise Misread(at, f"a word that has no place (the config is {shown(self.config or '')})", [f"--{match}"])
        raise Misread(at, f"a word that has no place (the config is {shown(self.config or '')})", [])

    # Flags

    def _flag(self, at: int, token: Token) -> None:
        text = token.text
        dashes = token.dashes
        if dashes == len(text):
            raise Misread(at, "dashes without a name", [])
        if text[:dashes] != "--" and not (text[:dashes] == "-" and self._is_short(text)):
            what = "an option starts with two dashes" if set(text[:dashes]) == {"-"} else "these dashes are not hyphens"
            raise Misread(at, what, ["--" + text[dashes:]])
        name, equals, value = partition_key(text[dashes:])
        root, inner = _split_root(name)
        reader = self._reader(name, root, inner)
        reader(at, name if inner is None else inner, value if equals else None)

    def _is_short(self, text: str) -> bool:
        return text in self.known[0] or text in self.known[1] if self.known else len(text) == 2

    def _reader(self, name: str, root: str, inner: str | None) -> Callable[[int, str, str | None], None]:
        if inner is not None:
            if root in ROOTS:
                return lambda at, path, value: self._override(at, root, path, value)
            return lambda at, path, value: self._unknown_root(at, root, name)
        own = {"cfg": self._config, "sweep": self._sweep, "trials": self._trials, "flagfile": self._flagfile}
        return own.get(name, self._option)

    # `--ROOT.PATH=TEXT`

    def _override(self, at: int, root: str, path: str, text: str | None) -> None:
        if not path.strip():
            raise Misread(at, "the path after the dot is missing", [f"--{root}.PATH={text or 'VALUE'}"])
        if text is None:
            self._join_value(at, f"--{root}.{path}")
            return
        self._check_text(at, root, path, text)
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
        self._check_once(at, root, canonical)

    def _check_once(self, at: int, root: str, path: str) -> None:
        """Refuses a path that is given twice, except a flag file's line that the command line replaces."""
        other = self.seen.get((root, path))
        if other is not None and not self._replaces(at, other, root, path):
            first = self.tokens[other].text
            what = f"{path} is given twice (first as {shown(first)}); keep one"
            raise Misread(other, what, [self.tokens[at].text], count=1) if other == at else self._twice(at, other, what)
        rival = self.seen.get(("cfg" if root == "sweep" else "sweep", path)) if root in ("cfg", "sweep") else None
        if rival is not None:
            drop = at if root == "cfg" else rival
            raise Misread(drop, f"{path} is swept too, so this one value would never be used", [])
        self.seen[root, path] = at

    def _twice(self, at: int, other: int, what: str) -> Misread:
        """Returns the fault of two equal keys; the later one is kept."""
        kept = [token.text for token in self.tokens[other + 1 : at + 1]]
        return Misread(other, what, kept, count=at - other + 1)

    def _replaces(self, at: int, other: int, root: str, path: str) -> bool:
        if not self.tokens[other].place or self.tokens[at].place:
            return False
        kept = [pair for pair in self.pairs[root] if _canonical(pair[0]) != path]
        has_replaced = len(kept) < len(self.pairs[root])
        self.pairs[root] = kept
        return has_replaced

    def _check_text(self, at: int, root: str, path: str, text: str) -> None:
        flag = f"--{root}.{path.strip()}="
        if path != path.strip():
            raise Misread(at, "spaces around the equals sign", [flag + text.strip()])
        if not text.strip() and self._has_word(at + 1):
            raise Misread(at, "a space after the equals sign", [flag + self.tokens[at + 1].text], count=2)
        if not text.strip() and root == "sweep":
            raise Misread(at, "an axis needs its values", [f"{flag}[VALUE, VALUE]"])
        if is_unfinished(text):
            self._join_pieces(at, flag, text)
        closing = _SMART_QUOTES.get(text[:1])
        if root == "sweep" and closing and text.endswith(closing):
            raise Misread(at, "typographic quotes are no quotes to the shell", [flag + text[1:-1]])

    def _join_pieces(self, at: int, flag: str, text: str) -> None:
        """Refuses a value with an open bracket or quote that the next words close: the shell cut it."""
        joined = text
        for end in range(at + 1, len(self.tokens)):
            piece = self.tokens[end].text
            if piece.startswith("--"):
                return
            joined += f" {piece}"
            if not is_unfinished(joined):
                closing = _SMART_QUOTES.get(joined[0])
                joined = joined[1:-1] if closing and joined.endswith(closing) else joined
                what = "the shell cut the value at its spaces; quote it"
                raise Misread(at, what, [flag + joined], count=end + 1 - at)

    def _join_value(self, at: int, flag: str) -> None:
        """Refuses `--key` without a value, joined with the word that was meant as one."""
        what = "an override is one word, --key=value"
        end = at + 1
        if self._has_word(end) and self.tokens[end].text == "=":
            end += 1
        value = self.tokens[end].text if self._has_word(end) else ""
        if not value or (self.config is None and _FILE.match(value)):
            placeholder = "[VALUE, VALUE]" if flag.startswith("--sweep.") else "VALUE"
            raise Misread(at, what, [f"{flag}={placeholder}"], count=end - at)
        raise Misread(at, what, [f"{flag}={value.removeprefix('=')}"], count=end + 1 - at)

    def _has_word(self, at: int) -> bool:
        return at < len(self.tokens) and self.tokens[at].is_word

    def _without_cfg(self, path: str) -> str:
        singles = split_outside(path, ",")
        short = [single.removeprefix("cfg.") for single in singles]
        if short != singles:
            self.notes.append(f"--sweep.{path}: the prefix cfg. is not needed; --sweep.{','.join(short)} is the same.")
        return ",".join(short)

    def _unknown_root(self, at: int, root: str, name: str) -> None:
        text = self.tokens[at].text
        known = _OTHER_ROOT_NAMES.get(root.casefold()) or closest(root, ROOTS)
        right = f"--{known}{text[2 + len(root) :]}" if known else f"--cfg.{text[2:]}"
        raise Misread(at, f"unknown flag --{name}", [right], available=[f"--{root}.PATH" for root in ROOTS])

    # `--cfg=FILE`, `--sweep`, `--trials=FILE`, and the program's own options

    def _config(self, at: int, name: str, value: str | None) -> None:
        if not value:
            what = "the config is given as a word"
            if self._has_word(at + 1):
                raise Misread(at, what, [self.tokens[at + 1].text], count=2)
            raise Misread(at, what, ["CONFIG.py"])
        if _BARE_OVERRIDE.match(value) and not _FILE.match(value.partition("=")[0]):
            raise Misread(at, "an override of the config has a dot after cfg", [f"--cfg.{value}"])
        if self.config is not None:
            raise Misread(at, f"there are two configs, {shown(self.config)} and {shown(value)}", [])
        self.config = value

    def _sweep(self, at: int, name: str, value: str | None) -> None:
        if value is None:
            self._bare_sweep(at)
            return
        if not value.strip(" ,"):
            raise Misread(at, "the name of a sweep function is missing", ["--sweep"])
        if _FILE.match(value):
            raise Misread(at, "the config is given as a word", [value, "--sweep"])
        if "=" in value and not value.startswith(("[", "(")):
            raise Misread(at, "an axis has a dot after sweep", [f"--sweep.{value}"])
        names = [single.removeprefix("sweep_") for single in split_outside(value, ",") if single]
        if not all(single.isidentifier() for single in names):
            what = "this is no name of a sweep function; an axis has its path before the equals sign"
            raise Misread(at, what, [f"--sweep.PATH={value}"])
        if ",".join(names) != value:
            raise Misread(at, "sweep functions are named without spaces and prefix", [f"--sweep={','.join(names)}"])
        for single in names:
            self._add_sweep(at, single)

    def _bare_sweep(self, at: int) -> None:
        if self._has_word(at + 1):
            word = self.tokens[at + 1].text
            if self.config is None and (_FILE.match(word) or not word.isidentifier()):
                raise Misread(at, "the config comes before --sweep, which takes no word", [word, "--sweep"], count=2)
            raise Misread(at, "an option is one word, --key=value", [f"--sweep={word}"], count=2)
        self._add_sweep(at, "")

    def _add_sweep(self, at: int, name: str) -> None:
        if name in self.sweeps:
            raise Misread(at, f"sweep function {shown(name)} is given twice", [])
        self.sweeps.append(name)

    def _trials(self, at: int, name: str, value: str | None) -> None:
        if not value:
            self._join_value(at, f"--{name}")
        if self.trials is not None and not self._from_file(at):
            raise Misread(at, f"there are two files of trials, {shown(self.trials)} and {shown(value or '')}", [])
        self.trials = value

    def _from_file(self, at: int) -> bool:
        """Whether a flag file gave the value that the command line now replaces."""
        earlier = [token for token in self.tokens[:at] if token.text.startswith("--trials=")]
        return not self.tokens[at].place and all(token.place for token in earlier)

    def _flagfile(self, at: int, name: str, value: str | None) -> None:
        # With a value it was replaced by its lines before; it is only met again while a command is corrected.
        if not value:
            self._join_value(at, f"--{name}")

    def _option(self, at: int, name: str, value: str | None) -> None:
        text = self.tokens[at].text
        if self.known is None:
            if name in ("run", "args"):
                raise Misread(at, "a dot and a name are missing", [f"--{name}.NAME={value or 'VALUE'}"])
            self.rest.append(text)
            return
        flags, options = self.known
        flag = text[: len(text) - len(value) - 1] if value is not None else text
        if flag in flags:
            if value is not None:
                raise Misread(at, "this flag takes no value", [flag])
        elif flag in options:
            if value is None:
                self._join_value(at, flag)
        else:
            self._unknown_option(at, flag, value)
        self.rest.append(text)

    def _unknown_option(self, at: int, flag: str, value: str | None) -> None:
        assert_known = self.known or (frozenset[str](), frozenset[str]())
        names = sorted({*assert_known[0], *assert_known[1]})
        available = [*names, *(f"--{root}.PATH" for root in ROOTS), "--trials", "--flagfile"]
        name = flag.lstrip("-")
        if name in ("run", "args"):
            raise Misread(at, "a dot and a name are missing", [f"--{name}.NAME={value or 'VALUE'}"])
        if match := closest(flag, [*names, *(f"--{own}" for own in _OWN_NAMES)]):
            right = match if value is None else f"{match}={value}"
            raise Misread(at, f"unknown flag {flag}", [right], available=available)
        instead = None if value is None else [f"--cfg.{name}={value}"]
        raise Misread(at, f"unknown flag {flag}", instead, available=available)


def _split_root(name: str) -> tuple[str, str | None]:
    """Returns `cfg` and the path of `cfg.PATH`; the path is None when there is no dot or bracket."""
    match = re.match(r"([^.\[\s]*)([.\[])", name)
    if not match:
        return name, None
    inner = name[match.end() :] if match[2] == "." else name[match.start(2) :]
    return match[1], inner


def _canonical(path: str) -> str:
    try:
        return paths.format(paths.parse(path))
    except ConfigError:
        return path
