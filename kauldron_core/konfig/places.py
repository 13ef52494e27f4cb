"""Finds the place that a path names in a config, and reads, writes and restores it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kauldron_core import paths
from kauldron_core.errors import ConfigError, closest, unknown_name
from kauldron_core.konfig import annotations
from kauldron_core.konfig.annotations import UNKNOWN
from kauldron_core.konfig.config_dict import ConfigDict
from kauldron_core.konfig.evaluate import fields
from kauldron_core.konfig.parameters import Parameter, parameters
from kauldron_core.konfig.references import Placeholder
from kauldron_core.konfig.refusal import one_line, refusal
from kauldron_core.konfig.slots import Slot

_MISSING: Any = object()


@dataclass(frozen=True)
class Place:
    """One place of a config.

    Attributes:
      holder: The node that holds the field (a config, or a list inside of it).
      key: Name or index in the holder.
      inner: Indices below the field, where tuples are in the way and have to be rebuilt.
      slot: What may be put there.
    """

    holder: Any
    key: Any
    inner: tuple[int, ...]
    slot: Slot

    def set(self, value: Any) -> None:
        """Writes `value`.

        Raises:
          ConfigError: When the config refuses it.
        """
        if self.inner:
            value = _replaced(self.holder[self.key], self.inner, value)
        write(self.holder, self.key, value, at=self.slot.at)

    def saved(self) -> Any:
        """Returns what `restore` needs to bring the place back as it is now, references included."""
        return read_raw(self.holder, self.key)

    def restore(self, saved: Any) -> None:
        """Brings back what `saved` returned."""
        write_raw(self.holder, self.key, saved)


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


class _Walk:
    """Goes down a config, one part of the path after the other."""

    def __init__(self, cfg: Any, parts: tuple[Any, ...], at: str, flag: str) -> None:
        self.cfg, self.parts, self.at, self.flag = cfg, parts, at, flag

    def find(self) -> Place:
        node, annotation = self.cfg, UNKNOWN
        holder, key, inner = None, None, ()
        default: Any = UNKNOWN
        for index, part in enumerate(self.parts):
            if isinstance(node, Mapping):
                holder, inner = node, ()
                key, annotation, default = self._field(node, part, index, annotation)
                node = _get(node, key)
                if node is _MISSING and index + 1 < len(self.parts):
                    node = None
            elif isinstance(node, (list, tuple)):
                position = self._position(node, part, index)
                if isinstance(node, list) and not inner:
                    holder, key = node, position
                else:
                    inner = (*inner, position)
                annotation, default = annotations.element(annotation, position), UNKNOWN
                node = node[position]
            else:
                raise ConfigError(self._nothing_inside(node, index))
        current = None if node is _MISSING else node
        return Place(holder, key, inner, Slot(self.at, current, annotation, default))

    def _field(self, node: Any, part: Any, index: int, annotation: Any) -> tuple[Any, Any, Any]:
        """Returns key, annotation and default of the field that `part` names in a config node."""
        qualname = node.get("__qualname__") if "__qualname__" in node else None
        known = parameters(qualname) if isinstance(qualname, str) else None
        if isinstance(part, int) and qualname is not None:
            key = self._positional(node, part, index)
        elif qualname is not None and known and part not in node and (position := _position_of(node, known, part)):
            key = position
        elif (
            (part in node and part not in ("__qualname__", "__const__"))
            or (known and part in known)
            or (qualname is not None and known is None)
            or (known is not None and _takes_any(qualname))
        ):
            key = part
        else:
            raise ConfigError(self._unknown(node, part, index, known))
        if qualname is None:
            # None switches an entry of a dict off (`--cfg.evals.test=None`).
            return key, annotations.element(annotation, key), None
        parameter = _parameter(node, known or {}, key)
        return key, parameter.annotation, parameter.default

    def _positional(self, node: Any, part: int, index: int) -> str:
        count = sum(1 for key in node if str(key).isdigit())
        if not -count <= part < count:
            raise ConfigError(self._out_of_range(part, count, index, "positional argument"))
        return str(part % count)

    def _position(self, node: list[Any] | tuple[Any, ...], part: Any, index: int) -> int:
        if not isinstance(part, int) or isinstance(part, bool):
            where = paths.format(self.parts[:index])
            what = f"{where} is a {type(node).__name__} of {len(node)} and takes an index, not {part!r}"
            raise ConfigError(refusal(self.at, what, write=f"{self.flag}{where}[0]=VALUE"))
        if not -len(node) <= part < len(node):
            raise ConfigError(self._out_of_range(part, len(node), index, "element"))
        return part % len(node)

    def _out_of_range(self, part: int, count: int, index: int, kind: str) -> str:
        where = paths.format(self.parts[:index])
        valid = f"0 to {count - 1}" if count else "none"
        return refusal(self.at, f"index {part} is out of range: {where} has {count} {kind}s ({valid})")

    def _nothing_inside(self, node: Any, index: int) -> str:
        where = paths.format(self.parts[:index])
        what = f"{where} is {annotations.kind_of(node)} and has nothing inside"
        return refusal(self.at, what, write=f"{self.flag}{where}=VALUE")

    def _unknown(self, node: Any, part: Any, index: int, known: Mapping[str, Parameter] | None) -> str:
        names = [str(key) for key in node if key not in ("__qualname__", "__const__")]
        names += [name for name in known or () if name not in names and _position_of(node, known or {}, name) is None]
        message = unknown_name("key", str(part), names, at=self.at)
        if closest(str(part), names):
            return message
        return f"{message}{self._elsewhere(part)}"

    def _elsewhere(self, part: Any) -> str:
        """Returns the full path of a leaf of that name elsewhere in the config, as a hint."""
        found = [path for path in leaf_paths(self.cfg) if paths.parse(path)[-1] == self.parts[-1]]
        return f" There is {', '.join(self.flag + path for path in found[:3])}." if found else ""


def leaf_paths(node: Any, prefix: str = "", visited: frozenset[int] = frozenset()) -> list[str]:
    """Returns the path of every leaf of a config."""
    if id(node) in visited or not isinstance(node, (Mapping, list, tuple)):
        return [prefix] if prefix else []
    visited = visited | {id(node)}
    keys = [key for key in node if key not in ("__qualname__", "__const__")] if isinstance(node, Mapping) else None
    pairs = [(key, node[key]) for key in keys] if keys is not None else list(enumerate(node))
    return [leaf for key, child in pairs for leaf in leaf_paths(child, paths.join(prefix, key), visited)]


def _get(node: Any, key: Any) -> Any:
    return node[key] if key in node else _MISSING


def _position_of(node: Any, known: Mapping[str, Parameter], name: Any) -> str | None:
    """Returns the positional key under which the argument `name` is given, if it is."""
    if name not in known:
        return None
    position = str(list(known).index(name))
    return position if position in node else None


def _parameter(node: Any, known: Mapping[str, Parameter], key: Any) -> Parameter:
    if str(key).isdigit() and int(key) < len(known):
        return list(known.values())[int(key)]
    return known.get(key, Parameter(str(key)))


def _takes_any(qualname: Any) -> bool:
    from kauldron_core.konfig.parameters import loaded

    try:
        kinds = [parameter.kind for parameter in inspect.signature(loaded(qualname)).parameters.values()]
    except (TypeError, ValueError):
        return True
    return inspect.Parameter.VAR_KEYWORD in kinds


def _replaced(value: Any, indices: tuple[int, ...], new: Any) -> Any:
    """Returns the nested tuple with one element replaced."""
    first, *rest = indices
    items = list(value)
    items[first] = _replaced(items[first], tuple(rest), new) if rest else new
    return type(value)(items)


def read_raw(holder: Any, key: Any) -> Any:
    """Returns what is stored under `key`, a reference as the reference; `_MISSING` when nothing is."""
    if not isinstance(holder, ConfigDict):
        return holder[key]
    stored = fields(holder).get(key, _MISSING)
    # Writing to a placeholder fills it, so its value is what has to be kept.
    return (stored, stored.value) if type(stored) is Placeholder else stored


def write_raw(holder: Any, key: Any, value: Any) -> None:
    """Stores what `read_raw` returned, without any check."""
    if not isinstance(holder, ConfigDict):
        holder[key] = value
    elif value is _MISSING:
        fields(holder).pop(key, None)
    elif type(value) is tuple and value and type(value[0]) is Placeholder:
        value[0].value = value[1]
        fields(holder)[key] = value[0]
    else:
        fields(holder)[key] = value


def write(holder: Any, key: Any, value: Any, *, at: str) -> None:
    """Stores a value that was checked against its slot.

    Raises:
      ConfigError: When the config refuses it.
    """
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
