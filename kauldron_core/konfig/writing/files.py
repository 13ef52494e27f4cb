"""Configs as JSON text and as files."""

from __future__ import annotations

import json
import logging
import os
import pathlib
from typing import Any, Final

from kauldron_core.errors import ConfigError, DamagedFile
from kauldron_core.konfig.json.encoding import encode
from kauldron_core.konfig.tree.building import Builder
from kauldron_core.konfig.tree.markers import FORMAT
from kauldron_core.konfig.tree.nodes import blank, is_a
from kauldron_core.konfig.tree.origins import Origin
from kauldron_core.konfig.writing.config_dict import ConfigDict

VERSION: Final = 1
_log = logging.getLogger(__name__)
MAX_BYTES: Final = 16 * 2**20
"""Largest file that is read; a config of 300 leaves has 20 kB."""


def to_json(cfg: Any, references: bool = True, *, indent: int | None = None) -> str:
    """Returns a config as JSON text.

    Args:
      cfg: The config.
      references: Whether references stay references. False gives the plain form that Kauldron reads: tuples become
        lists, paths become text, shared nodes are written in full each time.
      indent: Spaces by which nested lines are indented; one line when it is not given.

    Raises:
      ConfigError: With the path of a value that JSON cannot hold.
    """
    separators = (",", ":") if indent is None and references else None
    body = encode(cfg, references=references)
    if not references:
        return json.dumps(body, indent=indent, separators=separators)
    return _strict_text(body, indent=indent, separators=separators)


def from_json(text: str, *, source: str = "a JSON text") -> ConfigDict:
    """Returns the config in a JSON text. Its nodes are untrusted: it could come from anywhere.

    Args:
      text: What `to_json` or Kauldron wrote.
      source: What the text is called in messages.

    Raises:
      DamagedFile: When it is not JSON, or not an object.
      ConfigError: When it is not the JSON of a config.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{source}: a config of more than {MAX_BYTES} bytes is not read")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{source}: not JSON ({error})") from None
    return from_data(data, source=source)


def save(cfg: Any, path: str | os.PathLike[str]) -> None:
    """Writes a config to a file, references kept.

    Raises:
      ConfigError: With the path of a value that JSON cannot hold; the file is not touched then.
    """
    from kauldron_core.rundir.atomic import write_atomic  # Loaded on use: only saving needs the room.

    body = encode(cfg, references=True)
    write_atomic(pathlib.Path(path), _strict_text({FORMAT: VERSION, "config": body}, indent=1) + "\n")


def load(path: str | os.PathLike[str]) -> ConfigDict:
    """Reads a config from a file. Its nodes are untrusted: what they name is checked before it is imported.

    Raises:
      ConfigError: When the file does not hold a config.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise DamagedFile(f"{path}: {size} bytes are too many for a config (at most {MAX_BYTES})")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DamagedFile(f"{path}: not a text file") from None
    return from_json(text, source=str(path))


def _strict_text(body: Any, *, indent: int | None, separators: tuple[str, str] | None = None) -> str:
    """Returns JSON that every reader takes: NaN and infinities become marked dicts."""
    try:
        return json.dumps(body, indent=indent, separators=separators, allow_nan=False)
    except ValueError:
        from kauldron_core.rundir.json_text import dumps  # Loaded on use: few configs hold such numbers.

        return dumps(body, indent=indent, separators=separators)


def from_data(data: Any, *, source: str) -> ConfigDict:
    """Returns the config that a part of a JSON file holds. Its nodes are untrusted, as those of `from_json` are.

    Args:
      data: What the JSON stands for, dicts and lists.
      source: What the file is called in messages.

    Raises:
      ConfigError: When it is not that of a config.
    """
    if not is_a(data, dict):
        raise DamagedFile(f"{source}: a config is a JSON object, not a {type(data).__name__}")
    body: dict[Any, Any] = data
    if FORMAT in body:
        version = body[FORMAT]
        if version != VERSION:
            raise ConfigError(f"{source}: written in format {version!r}; this version reads {VERSION}")
        body = data.get("config")
        if not is_a(body, dict):
            raise ConfigError(f"{source}: the config in it is not a JSON object")
    cfg = blank(ConfigDict, trusted=False, origin=Origin(source, 0))
    builder = Builder(ConfigDict, trusted=False, origin=Origin(source, 0))
    try:
        builder.fill(cfg, body)
    except ConfigError as error:
        raise type(error)(f"{source}: {error}") from None
    for place in builder.left_out:
        _log.warning("%s: %s (Kauldron's launcher) is left out: sweeps are started by other means here", source, place)
    return cfg
