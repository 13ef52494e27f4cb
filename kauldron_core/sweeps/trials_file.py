"""Reads a file with one trial a line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, cast

from kauldron_core import rundir
from kauldron_core.errors import ConfigError, one_line, shown
from kauldron_core.konfig.overrides.names import Aliases, Names
from kauldron_core.konfig.overrides.overrides import split_overrides
from kauldron_core.konfig.overrides.places import Saved, find_place
from kauldron_core.konfig.overrides.refusal import Refused, refusal
from kauldron_core.konfig.overrides.slots import Slot
from kauldron_core.konfig.overrides.values import read_value


def read_points(path: Path, cfg: Any, aliases: Aliases | None) -> list[list[tuple[str, Any]]]:
    """Returns the overrides of each line.

    Raises:
      ConfigError: With file and line, when a line cannot be read.
    """
    try:
        lines = rundir.with_home(path, at="--trials").read_text(encoding="utf-8").splitlines()
    except ConfigError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(refusal(f"--trials={path}", f"this file cannot be read ({reason})")) from error
    names = Names.of(cfg, aliases)
    points: list[list[tuple[str, Any]]] = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            points.append(_point(text, f"{path}:{number}", cfg, names))
    if not points:
        raise ConfigError(refusal(f"--trials={path}", "there is no trial in this file"))
    return points


def _point(text: str, at: str, cfg: Any, names: Names) -> list[tuple[str, Any]]:
    try:
        if text.startswith("{"):
            return _from_json(text)
        words = [word.removeprefix("--cfg.").removeprefix("--sweep.") for word in shlex.split(text)]
        return _applied_in_turn(split_overrides(words), cfg, names)
    except ConfigError as error:
        raise ConfigError(f"{at}: {error}") from None
    except ValueError as error:
        raise ConfigError(refusal(at, f"{shown(text)} cannot be split into words ({one_line(str(error))})")) from None


def _applied_in_turn(pairs: list[tuple[str, str]], cfg: Any, names: Names) -> list[tuple[str, Any]]:
    """Returns the values of one line, each read against the config with those before it in place."""
    done: list[Saved] = []
    values: list[tuple[str, Any]] = []
    try:
        for path, text in pairs:
            place = find_place(cfg, path)
            value = _value(text, place.slot, names)
            values.append((path, value))
            done.append(place.saved())
            place.set(value)
    finally:
        for saved in reversed(done):
            saved.restore()
    return values


def _value(text: str, slot: Slot, names: Names) -> Any:
    try:
        return read_value(text, slot, names)
    except Refused as error:
        if error.flag == error.at:
            raise
        raise Refused(error.at, error.what, text=text) from None  # A line holds one trial: an axis has no place in it.


def _from_json(text: str) -> list[tuple[str, Any]]:
    try:
        loaded = cast(dict[str, Any], json.loads(text))
    except ValueError as error:
        raise ConfigError(f"this line is not JSON ({one_line(str(error))})") from None
    return [(path.removeprefix("cfg."), value) for path, value in loaded.items()]
