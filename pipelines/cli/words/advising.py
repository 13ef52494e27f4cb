"""Tries a corrected command line on the config that it names, so that no override is advised that it does not take."""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from kauldron_core import paths
from kauldron_core.errors import ConfigError, closest
from kauldron_core.konfig.overrides.overrides import apply_overrides
from kauldron_core.konfig.overrides.places import find_place, leaf_paths
from kauldron_core.konfig.overrides.refusal import Refused
from kauldron_core.konfig.overrides.splitting import partition_key, split_outside
from kauldron_core.sweeps.axis_text import parse_axes, parse_axis
from kauldron_core.sweeps.config_file import ConfigFile, load_config_file
from pipelines.cli.words.override_words import split_root
from pipelines.cli.words.tokens import Token

_MAX_TRIED = 20
_MAX_NAMED = 3


@dataclass(frozen=True)
class Advice:
    """A corrected command line.

    Attributes:
      tokens: Its words; None where none are known that the config takes.
      near: What the config has in place of a name that is none of its paths, for the message.
    """

    tokens: list[Token] | None
    near: str = ""


def tried(tokens: list[Token], config: str | None, args: dict[str, str], roots: Collection[str]) -> Advice:
    """Returns a corrected command line whose overrides the config takes.

    Args:
      tokens: The corrected words.
      config: The config file among them.
      args: Argument texts of its `get_config`.
      roots: What overrides of the command may start with.
    """
    if not any(_is_override(token.text) for token in tokens):
        return Advice(tokens)
    file = _read(config, args)
    if file is None:
        return Advice(None if any(token.is_guess for token in tokens) else tokens)
    overridden = _Overridden(file, roots)
    fitted: list[Token] = []
    for token in tokens:
        text = overridden.fitting(token.text, is_guess=token.is_guess) if _is_override(token.text) else token.text
        if text is None and token.place and not token.is_guess:
            text = token.text  # It stays in its file, and is a fault of its own.
        if text is None:
            return Advice(None, overridden.near(token.text) if token.is_guess else "")
        fitted.append(replace(token, text=text))
    return Advice(fitted)


def _read(config: str | None, args: dict[str, str]) -> ConfigFile | None:
    try:
        return None if config is None else load_config_file(config, args)
    except (ConfigError, OSError):  # Whoever runs the command is told; here it only means that nothing can be tried.
        return None


def _is_override(text: str) -> bool:
    """Returns whether a word is an override or an axis, and no form to be filled in."""
    return text.startswith(("--cfg.", "--cfg[", "--sweep.", "--sweep[")) and not any(
        form in text for form in ("VALUE", ".PATH", ".NAME")
    )


class _Overridden:
    """Applies overrides to a copy of a config, one after the other."""

    def __init__(self, file: ConfigFile, roots: Collection[str]) -> None:
        self._config, self._aliases, self._roots = copy.deepcopy(file.config), file.aliases, roots

    def fitting(self, text: str, *, is_guess: bool) -> str | None:
        """Applies an override and returns it as the config takes it, corrected where need be.

        Args:
          text: The override.
          is_guess: Whether the user wrote no more than a name: only a path that ends with it was meant then.

        Returns:
          None where nothing is known that it takes.
        """
        waiting, seen = [text], set[str]()
        while waiting and len(seen) < _MAX_TRIED:
            one = waiting.pop(0)
            if one in seen:
                continue
            seen.add(one)
            try:
                self._apply(one)
            except ConfigError as error:
                waiting += self._corrected(one, error, is_guess)
            else:
                return one
        return None

    def near(self, text: str) -> str:
        """Returns what the config has that a name might have meant."""
        _, path, _ = _split(text)
        near = _ending(self._config, path) or [
            one for one in leaf_paths(self._config) if _last(one) == _closest_last(self._config, path)
        ]
        return ", ".join(f"--cfg.{one}" for one in near[:_MAX_NAMED])

    def _apply(self, text: str) -> None:
        root, path, value = _split(text)
        if root == "sweep":
            parse_axes(self._config, [(path, value)], aliases=self._aliases)
        else:
            apply_overrides(self._config, [f"{path}={value}"], aliases=self._aliases, read_axis=parse_axis)

    def _corrected(self, text: str, error: ConfigError, is_guess: bool) -> list[str]:
        """Returns what may have been meant by an override that was refused."""
        root, path, value = _split(text)
        paths_given = split_outside(path, ",") if root == "sweep" else [path]
        right = [self._path(one, is_guess) for one in paths_given]
        if None in right:
            return []
        if right != paths_given:
            return [f"--{root}.{','.join(map(str, right))}={value}"]
        if not isinstance(error, Refused) or error.right is None or "VALUE" in error.right:
            return []
        return [f"{error.flag}={error.right}"] if _split(error.flag)[0] in self._roots else []

    def _path(self, path: str, is_guess: bool) -> str | None:
        """Returns the path, or the one of the config that was meant; None where that is not known."""
        try:
            find_place(self._config, path)
            return path
        except ConfigError:
            ending = _ending(self._config, path)
            if ending or is_guess:
                return ending[0] if len(ending) == 1 else None
            return closest(path, leaf_paths(self._config))


def _split(text: str) -> tuple[str, str, str]:
    """Returns root, path and value of an override."""
    name, _, value = partition_key(text.removeprefix("--"))
    root, path = split_root(name)
    return root, path or "", value


def _ending(config: Any, path: str) -> list[str]:
    """Returns the paths of the leaves of a config that end with another path."""
    try:
        parts = paths.parse(path)
    except ConfigError:
        return []
    return [leaf for leaf in leaf_paths(config) if paths.parse(leaf)[-len(parts) :] == parts]


def _last(path: str) -> str:
    return str(paths.parse(path)[-1])


def _closest_last(config: Any, path: str) -> str | None:
    return closest(path, [_last(leaf) for leaf in leaf_paths(config)])
