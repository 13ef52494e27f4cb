"""Sorts the words of a command line, one after the other."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kauldron_core.errors import closest, shown
from kauldron_core.konfig.overrides.splitting import partition_key, split_outside
from pipelines.cli.words.override_words import ROOTS, OverrideWords, has_word, is_config_file, split_root, without_value
from pipelines.cli.words.tokens import Misread, Token

_OTHER_ROOT_NAMES = {"config": "cfg", "conf": "cfg", "c": "cfg", "arg": "args", "axis": "sweep", "xp": "run"}
_NEAR = 0.75
_OWN_NAMES = ("cfg", "sweep", "trials", "flagfile")
_BARE_OVERRIDE = re.compile(r"[\w.\[\]'\"-]+\s*=", re.DOTALL)


@dataclass(frozen=True)
class Known:
    """The options of the program that reads the command line.

    Attributes:
      flags: Those without a value.
      options: Those with one.
      roots: What its overrides start with.
      run_names: Fields of the run spec, for those who leave `run.` out.
    """

    flags: frozenset[str]
    options: frozenset[str]
    roots: tuple[str, ...] = ROOTS
    run_names: frozenset[str] = frozenset()

    @property
    def forms(self) -> list[str]:
        """What can be written beside its own options."""
        axes = ["--trials"] if "sweep" in self.roots else []
        return [*(f"--{root}.PATH" for root in self.roots), *axes, "--flagfile"]


class Sorter:
    """Reads words one after the other.

    Args:
      tokens: The words.
      known: The program's own options; None leaves every undotted option unread.
      max_words: How many words without dashes there may be.

    Attributes:
      config: The config file.
      overrides: What was read with a root and a dot.
      trials: The file of trials.
      sweeps: Names of sweep functions.
      words: Words after the config.
      rest: What is left for the program.
    """

    def __init__(self, tokens: Sequence[Token], known: Known | None, max_words: int) -> None:
        self._tokens, self._known, self._max_words = tokens, known, max_words
        self.config: str | None = None
        self.overrides = OverrideWords(tokens)
        self.trials: str | None = None
        self.sweeps: list[str] = []
        self.words: list[str] = []
        self.rest: list[str] = []

    def sort(self) -> None:
        """Reads all words.

        Raises:
          Misread: At the first that is wrong.
        """
        for at, token in enumerate(self._tokens):
            if token.is_word:
                self._word(at, token.text)
            else:
                self._flag(at, token)

    # Words

    def _word(self, at: int, text: str) -> None:
        if not text.strip():
            raise Misread(at, "an empty word (an unset shell variable?)", [])
        if _is_bare_override(text):
            root = re.split(r"[.\[=\s]", text, maxsplit=1)[0]
            prefix = "--" if root in (*ROOTS, *_OWN_NAMES) else "--cfg."
            raise Misread(at, "an override starts with two dashes", [prefix + text])
        if self.config is None:
            self.config = text
        elif 1 + len(self.words) < self._max_words:
            self.words.append(text)
        else:
            raise self._stray(at, text)

    def _stray(self, at: int, text: str) -> Misread:
        """Returns the fault of a word that has no place, with the most likely one."""
        before = self._tokens[at - 1].text if at else ""
        if before.startswith(tuple(f"--{root}." for root in ROOTS)) and "=" in before:
            what = f"the shell cut the value at a space, and {shown(text)} has no place; quote it"
            return Misread(at - 1, what, [f"{before} {text}"], count=2)
        if is_config_file(text):
            return Misread(at, f"there are two configs, {shown(self.config or '')} and {shown(text)}", [])
        names = [*self._known.flags, *self._known.options] if self._known else []
        match = closest(text, [name.lstrip("-") for name in names])
        what = f"a word that has no place ({shown(self.config or '')} is the first)"
        return Misread(at, what, [f"--{match}"] if match else [])

    # Flags

    def _flag(self, at: int, token: Token) -> None:
        text, dashes = token.text, token.dashes
        if dashes == len(text):
            raise Misread(at, "dashes without a name", [])
        if text[:dashes] != "--" and not (text[:dashes] == "-" and self._is_short(text)):
            what = "an option starts with two dashes" if set(text[:dashes]) == {"-"} else "these dashes are not hyphens"
            raise Misread(at, what, ["--" + text[dashes:]])
        name, equals, value = partition_key(text[dashes:])
        root, inner = split_root(name)
        if inner is None:
            self._reader(name)(at, name, value if equals else None)
        elif root in ROOTS:
            has_config = self.config is not None
            self.overrides.read(at, root, inner, value if equals else None, has_config=has_config)
        else:
            raise self._unknown_root(at, root, name)

    def _is_short(self, text: str) -> bool:
        return text in self._known.flags or text in self._known.options if self._known else len(text) == 2

    def _reader(self, name: str) -> Callable[[int, str, str | None], None]:
        own = {"cfg": self._config, "sweep": self._sweep, "trials": self._trials, "flagfile": self._flagfile}
        return own.get(name, self._option)

    def _unknown_root(self, at: int, root: str, name: str) -> Misread:
        text = self._tokens[at].text
        roots = self._known.roots if self._known else ROOTS
        known = _OTHER_ROOT_NAMES.get(root.casefold()) or closest(root, roots)
        right = f"--{known}{text[2 + len(root) :]}" if known in roots else f"--cfg.{text[2:]}"
        return Misread(at, f"unknown flag --{name}", [right], available=[f"--{root}.PATH" for root in roots])

    def _without_value(self, at: int, flag: str) -> Misread:
        return without_value(self._tokens, at, flag, has_config=self.config is not None)

    # `--cfg=FILE`, `--sweep`, `--trials=FILE`, and the program's own options

    def _config(self, at: int, name: str, value: str | None) -> None:
        if not value:
            has_next = has_word(self._tokens, at + 1)
            instead = [self._tokens[at + 1].text] if has_next else ["CONFIG.py"]
            raise Misread(at, "the config is given as a word", instead, count=1 + has_next)
        if _is_bare_override(value):
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
        if is_config_file(value):
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
        if has_word(self._tokens, at + 1):
            word = self._tokens[at + 1].text
            if self.config is None and (is_config_file(word) or not word.isidentifier()):
                raise Misread(at, "the config comes before --sweep, which takes no word", [word, "--sweep"], count=2)
            raise Misread(at, "an option is one word, --key=value", [f"--sweep={word}"], count=2)
        self._add_sweep(at, "")

    def _add_sweep(self, at: int, name: str) -> None:
        if name in self.sweeps:
            raise Misread(at, f"sweep function {shown(name)} is given twice", [])
        self.sweeps.append(name)

    def _trials(self, at: int, name: str, value: str | None) -> None:
        if not value:
            raise self._without_value(at, f"--{name}")
        if self.trials is not None and not self._replaces_flag_file(at):
            raise Misread(at, f"there are two files of trials, {shown(self.trials)} and {shown(value)}", [])
        self.trials = value

    def _replaces_flag_file(self, at: int) -> bool:
        earlier = [token for token in self._tokens[:at] if token.text.startswith("--trials=")]
        return not self._tokens[at].place and all(token.place for token in earlier)

    def _flagfile(self, at: int, name: str, value: str | None) -> None:
        # With a value it was replaced by its lines before; it is only met again while a command is corrected.
        if not value:
            raise self._without_value(at, f"--{name}")

    def _option(self, at: int, name: str, value: str | None) -> None:
        text = self._tokens[at].text
        flag = text if value is None else text[: len(text) - len(value) - 1]
        if name in ROOTS:
            raise Misread(at, "a dot and a name are missing", [f"--{name}.NAME={value or 'VALUE'}"])
        if self._known is not None:
            if flag in self._known.flags and value is not None:
                raise Misread(at, "this flag takes no value", [flag])
            if flag in self._known.options and value is None:
                raise self._without_value(at, flag)
            if flag not in self._known.flags and flag not in self._known.options:
                raise self._unknown_option(at, flag, value, self._known)
        self.rest.append(text)

    def _unknown_option(self, at: int, flag: str, value: str | None, known: Known) -> Misread:
        names = sorted({*known.flags, *known.options})
        available = [*names, *known.forms]
        own = [f"--{own}" for own in _OWN_NAMES if "sweep" in known.roots or own not in ("sweep", "trials")]
        match = _closest_flag(flag, [*names, *own])
        given = "" if value is None else f"={value}"
        path = flag.lstrip("-")
        instead = [match + given] if match and not (match in known.flags and given) else None
        if given and path in known.run_names:
            instead = [f"--run.{path}{given}"]
        guess = f"--cfg.{path}{given}" if given else ""
        return Misread(at, f"unknown flag {flag}", instead, available=available, guess=guess)


def _closest_flag(flag: str, names: Sequence[str]) -> str | None:
    """Returns the flag that was most likely meant; what it does must not be a surprise, so it has to be near."""
    bare = flag.lstrip("-").casefold()
    by_name = {name.lstrip("-"): name for name in names if "trust" not in name or "trust" in bare}
    match = closest(bare, by_name)
    is_near = match is not None and difflib.SequenceMatcher(None, bare, match).ratio() >= _NEAR
    is_begun = match is None or not is_near
    begun = [name for name in by_name if len(bare) > 2 and name.startswith(bare)] if is_begun else []
    return by_name[match] if match and is_near else (by_name[begun[0]] if len(begun) == 1 else None)


def _is_bare_override(text: str) -> bool:
    """Returns whether a word is `key=value`, and not a config with arguments."""
    return _BARE_OVERRIDE.match(text) is not None and not is_config_file(text.partition("=")[0])
