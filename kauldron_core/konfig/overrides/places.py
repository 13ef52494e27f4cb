"""Finds the place that a path names in a config, and reads, writes and restores it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from kauldron_core import paths
from kauldron_core.errors import ConfigError, closest, one_line, unknown_name
from kauldron_core.konfig.calls import hints
from kauldron_core.konfig.calls.hints import UNKNOWN
from kauldron_core.konfig.calls.signatures import ANYTHING, Signature
from kauldron_core.konfig.overrides.refusal import refusal
from kauldron_core.konfig.overrides.slots import Slot
from kauldron_core.konfig.tree.arguments import signature_of_node
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import fields, stored_key
from kauldron_core.konfig.tree.references import Placeholder
from kauldron_core.konfig.tree.walking import replaced
from kauldron_core.konfig.writing.config_dict import ConfigDict

_MISSING: Any = object()
_MARKERS = (QUALNAME, CONST)


@dataclass(frozen=True)
class Place:
    """One place of a config.

    Attributes:
      holder: The node that holds the field, or the list that holds the element.
      key: Key or index in the holder.
      inner: Indices below, where tuples are in the way and have to be rebuilt.
      slot: What may be put there.
    """

    holder: Any
    key: Any
    inner: tuple[int, ...]
    slot: Slot

    def set(self, value: Any) -> None:
        """Writes a value that the slot has fitted. None deletes an entry of a dict whose values cannot be None.

        Raises:
          ConfigError: When the config refuses it.
        """
        if value is None and self.slot.is_deleted_by_none:
            fields(self.holder).pop(self.key, None)
            return
        if self.inner:
            value = replaced(self.holder[self.key], self.inner, lambda _: value)
        _write(self.holder, self.key, value, at=self.slot.at)

    def saved(self) -> Saved:
        """Returns what brings the place back as it is now, references included."""
        if not isinstance(self.holder, ConfigDict):
            return Saved(self.holder, list(cast("list[Any]", self.holder)), None, None)
        stored = fields(self.holder).get(self.key, _MISSING)
        # Writing to a placeholder fills it, for every field that shares it.
        filled = stored.value if type(stored) is Placeholder else None
        return Saved(self.holder, dict(fields(self.holder)), stored, filled)


@dataclass(frozen=True)
class Saved:
    """A holder as it was."""

    holder: Any
    content: Any
    stored: Any
    filled: Any

    def restore(self) -> None:
        """Brings the holder back, its order included."""
        if not isinstance(self.holder, ConfigDict):
            self.holder[:] = self.content
            return
        if type(self.stored) is Placeholder:
            self.stored.value = self.filled
        own = fields(self.holder)
        own.clear()
        own.update(self.content)


def find_place(cfg: Any, path: str, *, flag: str = "--cfg.") -> Place:
    """Returns the place that `path` names.

    Raises:
      ConfigError: When there is no such place; the message gives the closest.
    """
    at = f"{flag}{path}"
    try:
        parts = paths.parse(path)
    except ConfigError as error:
        raise ConfigError(f"{at}: {error}") from None
    if not parts:
        raise ConfigError(refusal(at, "the path is missing", write=f"{flag}PATH=VALUE"))
    return _Walk(cfg, parts, at, flag).find()


def leaf_paths(cfg: Any) -> list[str]:
    """Returns the path of every leaf of a config, shared nodes under their first path."""
    found: list[str] = []
    _collect_leaves(cfg, "", set(), found)
    return found


class _Walk:
    """Goes down a config, one part of the path after the other."""

    def __init__(self, cfg: Any, parts: tuple[Any, ...], at: str, flag: str) -> None:
        self.cfg, self.parts, self.at, self.flag = cfg, parts, at, flag

    def find(self) -> Place:
        node: Any = self.cfg
        place = Place(None, None, (), Slot(self.at))
        for index, part in enumerate(self.parts):
            if isinstance(node, ConfigDict):
                place = self._field(node, part, index, place.slot.annotation)
            elif isinstance(node, (list, tuple)):
                place = self._element(cast("list[Any]", node), part, index, place)
            else:
                raise ConfigError(self._nothing_inside(node, index))
            node = place.slot.current
        return place

    def _field(self, node: ConfigDict, part: Any, index: int, annotation: Any) -> Place:
        """Returns the place of a field of a config node."""
        if CONST in node:
            raise ConfigError(self._nothing_inside(node, index))
        if QUALNAME in node:
            known = signature_of_node(node) or ANYTHING
            key = self._argument_key(node, part, index, known)
            parameter = known.at(key)
            current, annotation = _stored(node, key, parameter.annotation)
            return Place(node, key, (), Slot(self.at, current, annotation, parameter.default))
        if part not in node:
            raise ConfigError(self._unknown(node, part, Signature(takes_more_names=False)))
        current, annotation = _stored(node, part, hints.element(annotation, part))
        return Place(node, part, (), Slot(self.at, current, annotation, is_entry=True))

    def _argument_key(self, node: ConfigDict, part: Any, index: int, known: Signature) -> Any:
        """Returns the key under which a call keeps the argument that `part` names."""
        if type(part) is int:
            key = stored_key(node, part)
            if key not in node:
                count = sum(1 for name in fields(node) if str(name).isdigit())
                raise ConfigError(self._out_of_range(part, count, index, "positional arguments"))
            return key
        if part in node and part not in _MARKERS:
            return part
        position = known.position_of(part)
        if position is not None and position in node:
            return position
        if part in known.parameters or (known.takes_more_names and part not in _MARKERS):
            return part
        raise ConfigError(self._unknown(node, part, known))

    def _element(self, node: list[Any] | tuple[Any, ...], part: Any, index: int, place: Place) -> Place:
        """Returns the place of an element of a list or tuple."""
        if type(part) is not int:
            where = self._where(index)
            what = f"{where} is a {type(node).__name__} of {len(node)} and takes an index, not {part!r}"
            raise ConfigError(refusal(self.at, what, write=f"{self.flag}{where}[0]=VALUE"))
        if not -len(node) <= part < len(node):
            raise ConfigError(self._out_of_range(part, len(node), index, "elements"))
        position = part % len(node)
        slot = Slot(self.at, node[position], hints.element(place.slot.annotation, position))
        if isinstance(node, list) and not place.inner:
            return Place(node, position, (), slot)
        return Place(place.holder, place.key, (*place.inner, position), slot)

    def _where(self, index: int) -> str:
        return paths.format(self.parts[:index])

    def _out_of_range(self, part: int, count: int, index: int, kind: str) -> str:
        valid = f"0 to {count - 1}" if count else "none"
        return refusal(self.at, f"index {part} is out of range, {self._where(index)} has {count} {kind} ({valid})")

    def _nothing_inside(self, node: Any, index: int) -> str:
        where = self._where(index)
        what = f"{where} is {hints.kind_of(node)} and has nothing inside"
        return refusal(self.at, what, write=f"{self.flag}{where}=VALUE")

    def _unknown(self, node: ConfigDict, part: Any, known: Signature) -> str:
        names = [str(key) for key in fields(node) if key not in _MARKERS and not _is_position(node, key)]
        names += [name for name in known.parameters if name not in names]
        message = unknown_name("key", str(part), names, at=self.at)
        if not closest(str(part), names):
            last = self.parts[-1]
            elsewhere = [path for path in leaf_paths(self.cfg) if paths.parse(path)[-1] == last]
            message += f" There is {', '.join(self.flag + path for path in elsewhere[:3])}." if elsewhere else ""
        if QUALNAME not in node:
            message += " A new key is added in the config file, or with the whole dict."
        return message


def _is_position(node: ConfigDict, key: Any) -> bool:
    return QUALNAME in node and str(key).isdigit()


def _stored(node: ConfigDict, key: Any, annotation: Any) -> tuple[Any, Any]:
    """Returns the value of a field (None when it has none) and its annotation, which a placeholder gives too."""
    stored = fields(node).get(key)
    if type(stored) is Placeholder:
        return stored.value, stored.type if annotation is UNKNOWN else annotation
    try:
        return (None if stored is None else node[key]), annotation
    except ConfigError:  # A reference to what is not there (yet) has no value.
        return None, annotation


def _collect_leaves(node: Any, prefix: str, visited: set[int], found: list[str]) -> None:
    pairs = _children(node)
    if pairs is None:
        found.append(prefix)
        return
    if id(node) in visited:
        return
    visited.add(id(node))
    for key, child in pairs:
        _collect_leaves(child, paths.join(prefix, key), visited, found)


def _children(node: Any) -> list[tuple[Any, Any]] | None:
    """Returns what a node or list holds, by key; None for a leaf."""
    if isinstance(node, ConfigDict):
        return (
            None
            if CONST in node
            else [(key, _stored(node, key, UNKNOWN)[0]) for key in fields(node) if key not in _MARKERS]
        )
    return list(enumerate(cast("list[Any]", node))) if isinstance(node, (list, tuple)) else None


def _write(holder: Any, key: Any, value: Any, *, at: str) -> None:
    try:
        if not isinstance(holder, ConfigDict):
            holder[key] = ConfigDict({"it": value})["it"]
            return
        was_safe = vars(holder)["_type_safe"]
        # The slot knows the annotation, which the config's own rule of types does not.
        vars(holder)["_type_safe"] = False
        try:
            holder[key] = value
        finally:
            vars(holder)["_type_safe"] = was_safe
    except (ConfigError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise ConfigError(f"{at}: {one_line(str(error))}") from error
