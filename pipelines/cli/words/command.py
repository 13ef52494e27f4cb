"""Sorts the words of a command line: the config, overrides, axes, the run spec's overrides, and what Click gets.

Only `--key=value` is read. Whatever else a person types is refused with the command that they meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.overrides.refusal import refusal
from pipelines.cli.words.advising import Advice, tried
from pipelines.cli.words.override_words import ROOTS
from pipelines.cli.words.sorting import Known, Sorter
from pipelines.cli.words.tokens import Misread, Token, command_text, read_tokens

Pairs: TypeAlias = tuple[tuple[str, str], ...]

_MAX_CORRECTIONS = 20
_MAX_SHOWN = 200


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
    roots: Sequence[str] = ROOTS,
    run_names: Iterable[str] = (),
    max_words: int = 1,
) -> Command:
    """Returns the words of `argv` sorted.

    Args:
      argv: The words after the program's name.
      program: The program's name, for the corrected command in messages.
      flags: Options of the program that take no value (`--dry-run`).
      options: Options of the program that take one (`--root`). Without `flags` and `options` every undotted option
        is left to Click unread.
      roots: What the overrides of the program start with. Others are read all the same; they are not advised.
      run_names: Fields of the run spec; who writes one as an option is told the override.
      max_words: How many words without dashes there may be, the config included.

    Raises:
      ConfigError: For the first word that cannot be read; the message holds the corrected command.
    """
    if "--help" in argv:
        return Command(rest=("--help",))
    known = None
    if flags is not None or options is not None:
        known = Known(frozenset(flags or ()), frozenset(options or ()), tuple(roots), frozenset(run_names))
    tokens = read_tokens(argv)
    try:
        return _sorted(tokens, known, max_words)
    except Misread as fault:
        advice = _advice(tokens, fault, known, max_words)
        raise ConfigError(_message(tokens, fault, advice, program)) from None


def _sorted(tokens: Sequence[Token], known: Known | None, max_words: int) -> Command:
    sorter = Sorter(tokens, known, max_words)
    sorter.sort()
    pairs = sorter.overrides.pairs
    return Command(
        config=sorter.config,
        cfg=tuple(pairs["cfg"]),
        sweep=tuple(pairs["sweep"]),
        run=tuple(pairs["run"]),
        args=dict(pairs["args"]),
        trials=sorter.trials,
        sweeps=tuple(sorter.sweeps),
        words=tuple(sorter.words),
        rest=tuple(sorter.rest),
        notes=tuple(sorter.overrides.notes),
    )


def _advice(tokens: list[Token], fault: Misread, known: Known | None, max_words: int) -> Advice:
    """Returns the command line as it was meant, its overrides tried on the config where that can be read."""
    guess = _tried(fault.guessed(tokens), known, max_words)
    return guess if guess.tokens or fault.instead is None else _tried(fault.corrected(tokens), known, max_words)


def _tried(meant: list[Token] | None, known: Known | None, max_words: int) -> Advice:
    corrected = _corrected(meant, known, max_words)
    if corrected is None:
        return Advice(None)
    command = _sorted(corrected, known, max_words)
    advice = tried(corrected, command.config, dict(command.args), known.roots if known else ROOTS)
    try:
        _sorted(advice.tokens or [], known, max_words)
        return advice
    except Misread:  # Two words have turned out to mean one path.
        return Advice(None)


def _corrected(tokens: list[Token] | None, known: Known | None, max_words: int) -> list[Token] | None:
    """Returns the command line with all its faults corrected, so that the user need not come back for each."""
    corrected = tokens
    for _ in range(_MAX_CORRECTIONS):
        if corrected is None:
            return None
        try:
            _sorted(corrected, known, max_words)
            return corrected
        except Misread as next_fault:
            corrected = next_fault.corrected(corrected)
    return None


def _message(tokens: list[Token], fault: Misread, advice: Advice, program: str) -> str:
    wrong = tokens[fault.at : fault.at + fault.count]
    at = " ".join(token.text for token in wrong)
    at = at if len(at) <= _MAX_SHOWN else f"{at[:_MAX_SHOWN]}..."
    if wrong[0].place:
        at = f"{wrong[0].place}: {at}"
        right = [token.text for token in advice.tokens or () if token.place == wrong[0].place]
        write = " ".join(right if advice.tokens is not None else fault.instead or ())
    else:
        write = command_text(program, advice.tokens) if advice.tokens is not None else ""
    what = f"{fault.what} (the config has {advice.near})" if advice.near else fault.what
    return refusal(at, what, write=write, available=fault.available)
