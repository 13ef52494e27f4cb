"""Masks over parameters, by name: which ones a transformation is for."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax

from kauldron_core import kontext
from kauldron_core.errors import ConfigError, unknown_name

Mask: TypeAlias = Callable[[Any], Any]
"""Returns a tree of booleans like the parameters."""

Pattern: TypeAlias = str | Sequence[str]

_REGEX_CHARACTERS = re.compile(r"[*+?^$|(){}\[\]\\]")
_INDEX = re.compile(r"\[(\d+)\]")


def select(pattern: Pattern, *, missing_ok: bool = False) -> Mask:
    """Returns a mask that is True for the parameters whose path matches.

        optax.masked(optax.add_decayed_weights(1e-4), kd.optim.select("kernel"))

    `'encoder.kernel'` matches one or several whole segments anywhere in the dotted path, which has list indices as
    segments: `encoder.layers.0.kernel` holds `layers.0` (or `layers[0]`), not `encoder.kernel`. A text with characters
    of regular expressions is one, for whole segments as well: `'layers_[01]'`, `'encoder.*bias'`.

    Args:
      pattern: One pattern, or several of which one has to match.
      missing_ok: Whether a pattern may match nothing, which otherwise is an error.
    """
    return functools.partial(_mask, _as_tuple(pattern), True, missing_ok)


def exclude(pattern: Pattern, *, missing_ok: bool = False) -> Mask:
    """Returns a mask that is False for the parameters whose path matches: the inverse of `select`."""
    return functools.partial(_mask, _as_tuple(pattern), False, missing_ok)


def _mask(patterns: tuple[str, ...], value: bool, missing_ok: bool, params: Any) -> Any:
    flat, structure = jax.tree_util.tree_flatten_with_path(params)
    names = [_dotted(path) for path, _ in flat]
    matches = [{pattern for pattern in patterns if _compiled(pattern).search(name)} for name in names]
    unused = set(patterns).difference(*matches)
    if unused and names and not missing_ok:
        raise ConfigError(_no_match(sorted(unused)[0], names))
    return jax.tree.unflatten(structure, [bool(found) == value for found in matches])


@functools.lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    # A path as the rest of the house writes it, `layers[0].kernel`, is taken for one as well.
    plain = _INDEX.sub(r".\1", pattern)
    text = pattern if _REGEX_CHARACTERS.search(pattern) else re.escape(pattern)
    if plain != pattern and not _REGEX_CHARACTERS.search(plain):
        text = f"{text}|{re.escape(plain)}"
    try:
        return re.compile(rf"(^|\.)({text})(\.|$)")
    except re.error as error:
        raise ConfigError(f"optimizer: the pattern {pattern!r} is no regular expression: {error}.") from None


def _dotted(path: Any) -> str:
    return ".".join(str(part) for part in kontext.Path.from_jax_path(path).parts)


def _no_match(pattern: str, names: list[str]) -> str:
    segments = list(dict.fromkeys(part for name in names for part in name.split(".")))
    available = names if "." in pattern else segments
    return unknown_name("parameter", pattern, available, at="optimizer") + " `missing_ok=True` accepts a name of none."


def _as_tuple(pattern: Pattern) -> tuple[str, ...]:
    return (pattern,) if isinstance(pattern, str) else tuple(pattern)
