"""Applies override texts (`optimizer.learning_rate=0.1`) to a config, in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.overrides.names import Aliases, Names
from kauldron_core.konfig.overrides.places import Saved, find_place
from kauldron_core.konfig.overrides.refusal import Refused, refusal
from kauldron_core.konfig.overrides.slots import Slot
from kauldron_core.konfig.overrides.splitting import partition_key
from kauldron_core.konfig.overrides.values import read_value


class ReadAxis(Protocol):
    """`sweeps.parse_axis`: reads the text of an axis, and raises `ConfigError` where it is none."""

    def __call__(self, cfg: Any, path: str, text: str, /, *, names: Names) -> object: ...


def apply_overrides(
    cfg: Any,
    overrides: Iterable[str],
    *,
    aliases: Aliases | None = None,
    flag: str = "--cfg.",
    read_axis: ReadAxis | None = None,
) -> None:
    """Applies override texts to a config, in place and in order; nothing is changed when one is refused.

    Args:
      cfg: The config to change.
      overrides: Texts such as `optimizer.learning_rate=0.1`.
      aliases: Module path of each alias of the config file, beside the common ones (`{'xb': 'xarray_beam'}`).
      flag: What stands before the path on the command line, for messages.
      read_axis: Tries an axis before one is advised in place of an override; None advises none.

    Raises:
      ConfigError: For the first override that does not fit, in one line.
    """
    names: Names | None = None
    done: list[Saved] = []
    try:
        for path, text in split_overrides(overrides, flag=flag):
            names = names or Names.of(cfg, aliases)
            place = find_place(cfg, path, flag=flag)
            value = _value(cfg, path, text, place.slot, names, read_axis)
            done.append(place.saved())
            place.set(value)
    except BaseException:
        for saved in reversed(done):
            saved.restore()
        raise


def _value(cfg: Any, path: str, text: str, slot: Slot, names: Names, read_axis: ReadAxis | None) -> Any:
    """Returns the value of an override; where an axis is advised, it is one."""
    try:
        return read_value(text, slot, names)
    except Refused as error:
        if error.flag == error.at:
            raise
        if read_axis is None:
            raise ConfigError(refusal(error.at, error.what, available=error.available)) from None
        raise error.tried(lambda right: read_axis(cfg, path, right, names=names)) from None


def split_overrides(overrides: Iterable[str], *, flag: str = "--cfg.") -> list[tuple[str, str]]:
    """Returns each override as (path, text).

    Raises:
      ConfigError: When one has no equals sign, or a path is given twice or lost under a later one.
    """
    pairs: list[tuple[str, str]] = []
    for override in overrides:
        path, equals, text = partition_key(override.removeprefix(flag))
        if not equals:
            raise ConfigError(
                refusal(f"{flag}{override}", "an override is PATH=VALUE", write=f"{flag}{override}=VALUE")
            )
        pairs.append((path.strip(), text))
    _refuse_lost(pairs, flag)
    return pairs


def _refuse_lost(pairs: list[tuple[str, str]], flag: str) -> None:
    """Refuses an override that a later one of the same place, or of what holds it, would undo."""
    seen: dict[tuple[Any, ...], str] = {}
    for path, text in pairs:
        parts = paths.parse(path)
        for earlier, earlier_text in seen.items():
            if earlier[: len(parts)] == parts:
                what = f"it would undo {flag}{paths.format(earlier)}={earlier_text}, which comes before it"
                raise ConfigError(refusal(f"{flag}{path}={text}", f"{what}; keep one, or give this one first"))
        seen[parts] = text
