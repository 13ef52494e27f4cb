"""`ConfigDict`: the tree of plain data that describes an experiment.

A node is a plain dict, a call (`__qualname__` and its arguments, positional ones under `'0'`, `'1'`, ...) or a
constant (`__const__`). Nodes are mutable until they are resolved.
"""

from __future__ import annotations

import collections.abc
import contextlib
import json
from collections.abc import Generator, Mapping
from typing import Any, NoReturn, Self

from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.konfig.json import encoding
from kauldron_core.konfig.showing import html, printing
from kauldron_core.konfig.tree import arguments, casting, copying, marked, nodes, walking
from kauldron_core.konfig.tree import labels as names_of_nodes
from kauldron_core.konfig.tree.building import Builder
from kauldron_core.konfig.tree.evaluate import Evaluation
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import Node, kind_of
from kauldron_core.konfig.tree.origins import caller
from kauldron_core.konfig.tree.references import LAZY, PathRef, Placeholder

_UNSET: Any = object()


class ConfigDict(Node):
    """A node of a config, with attribute access, references, type safety and argument checks.

    Args:
      initial_dictionary: Fields to start with: a dict (also one read from JSON) or another config, whose
        sub-configs are then shared.
      type_safe: Whether a field keeps its type when it is overwritten.
    """

    _fields: dict[Any, Any]

    def __init__(
        self,
        initial_dictionary: Mapping[Any, Any] | Node | None = None,
        type_safe: bool = True,
    ) -> None:
        vars(self).update(nodes.initial_state(type_safe=type_safe, origin=caller()))
        if initial_dictionary is not None:
            Builder(ConfigDict).fill(self, initial_dictionary)

    @property
    def ref(self) -> Any:
        """References into this config: `cfg.ref.a.b` follows `cfg.a.b`."""
        return PathRef(self)

    # -- reading

    def __getitem__(self, key: Any) -> Any:
        fields = self._fields
        stored = key if key in fields else nodes.stored_key(self, key)
        try:
            value = fields[stored]
        except KeyError:
            raise self._missing(key) from None
        return value if type(value) not in LAZY else Evaluation().read(self, stored)

    def _missing(self, key: Any) -> LookupError:
        if type(key) is int and QUALNAME in self._fields:
            count = nodes.positional_count(self)
            return IndexError(f"{self._konfig_label()} has {count} positional arguments, not {key}")
        return KeyError(unknown_name("field", str(key), map(str, self._fields), at=self._konfig_label()))

    def __getattr__(self, name: str) -> Any:
        fields = vars(self).get("_fields")
        if fields is None or (name not in fields and name.startswith("__")):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def get(self, key: Any, default: Any = None) -> Any:
        """Returns the value at `key`, or `default` when there is none."""
        if key not in self:
            return default
        return self[key]

    def __contains__(self, key: Any) -> bool:
        return key in self._fields or nodes.stored_key(self, key) in self._fields

    def get_ref(self, key: Any) -> Any:
        """Returns a reference to the field `key`."""
        return PathRef(self, (key,))

    get_oneway_ref = get_ref

    # -- writing

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "ref" or (name.startswith("_") and name in vars(self)):
            raise ConfigError(f"{name!r} cannot be an attribute of a config; write cfg[{name!r}] if it is a field")
        try:
            self[name] = value
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is int:
            key = self._positional_key(key)
        fields = self._fields
        if key not in fields:
            self._check_new(key)
        if type(value) not in nodes.PLAIN:
            value = Builder(ConfigDict, at=self._konfig_at(key)).convert(value)
        old = fields.get(key)
        if type(old) is Placeholder and type(value) not in LAZY:
            old.value = casting.cast(value, old, self._konfig_at(key)) if self._type_safe else value
            return
        if old is not None and value is not None and self._type_safe:
            value = casting.cast(value, self._current(key, old), self._konfig_at(key))
        fields[key] = value

    def _current(self, key: Any, old: Any) -> Any:
        """Returns what a field reads as, for its type; None where that cannot be said."""
        if type(old) not in LAZY:
            return old
        try:
            return Evaluation().read(self, key)
        except Exception:  # A reference to what is not there (yet), or a function that fails: any value is fine then.
            return None

    def _positional_key(self, key: int) -> Any:
        stored = nodes.stored_key(self, key)
        if stored is not key and stored not in self._fields and stored != str(nodes.positional_count(self)):
            raise self._missing(key)
        return stored

    def _check_new(self, key: Any) -> None:
        if isinstance(key, str) and key.startswith("__"):
            marked.refuse_unknown_marker(key, at="cfg")
        if self._locked:
            message = unknown_name("field", str(key), map(str, self._fields), at=self._konfig_label())
            raise KeyError(f"{message} The config is locked.")
        if QUALNAME in self._fields:
            arguments.check_argument(self, key)
        elif CONST in self._fields:
            raise ConfigError(f"{self._konfig_label()} is a constant and has no field {key!r}")

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __delitem__(self, key: Any) -> None:
        if self._locked:
            raise KeyError(f"{self._konfig_label()} is locked: {key!r} cannot be deleted")
        stored = nodes.stored_key(self, key)
        if stored not in self._fields:
            raise self._missing(key)
        del self._fields[stored]

    def pop(self, key: Any, default: Any = _UNSET) -> Any:
        """Removes the field `key` and returns its value."""
        if key not in self and default is not _UNSET:
            return default
        value = self[key]
        del self[key]
        return value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Returns the value at `key`, which becomes `default` when there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *other: Any, **kwargs: Any) -> None:
        """Merges other dicts or configs into this one, plain dicts and calls of the same target field by field."""
        if len(other) > 1:
            raise TypeError(f"update takes one config or dict, not {len(other)}")
        for source in (*other, kwargs):
            copying.merge(self, source)

    def __or__(self, other: Any) -> ConfigDict:
        merged = copying.deepcopy(self)
        merged.update(other)
        return merged

    def __ror__(self, other: Any) -> ConfigDict:
        return ConfigDict(other) | self

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    # -- locks and types

    def lock(self) -> Self:
        """Refuses new fields from now on, here and below."""
        for node in walking.nodes(self):
            vars(node)["_locked"] = True
        return self

    def unlock(self) -> Self:
        """Accepts new fields again, here and below."""
        for node in walking.nodes(self):
            vars(node)["_locked"] = False
        return self

    @contextlib.contextmanager
    def ignore_type(self) -> Generator[Self]:
        """Lets fields change their type inside the block, here and below."""
        before = [(node, node.is_type_safe) for node in walking.nodes(self)]
        for node, _ in before:
            vars(node)["_type_safe"] = False
        try:
            yield self
        finally:
            for node, was_safe in before:
                vars(node)["_type_safe"] = was_safe

    def get_type(self, key: Any) -> Any:
        """Returns the type that a new value of the field has to have."""
        value = self._fields[nodes.stored_key(self, key)]
        return value.type if type(value) is Placeholder else kind_of(self[key])

    # -- copies and comparison

    def __copy__(self) -> ConfigDict:
        return ConfigDict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> ConfigDict:
        return copying.deepcopy(self, memo)

    def copy_and_resolve_references(self, visit_map: dict[int, Any] | None = None) -> ConfigDict:
        """Returns a deep copy in which every reference is replaced by its value."""
        return copying.without_references(self)

    def to_dict(self, visit_map: dict[int, Any] | None = None, preserve_field_references: bool = False) -> Any:
        """Returns the config as plain nested dicts, references replaced by their values unless they are preserved."""
        return copying.to_dict(self, preserve=preserve_field_references)

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigDict) and copying.is_equal(self, other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    # -- showing

    def _konfig_label(self) -> str:
        return names_of_nodes.label(self._fields)

    def _konfig_at(self, key: Any) -> str:
        return names_of_nodes.field(self._fields, key)

    def __repr__(self) -> str:
        return f"<ConfigDict[{printing.pretty(self)}]>"

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return html.to_html(self)

    def to_json(self, *, indent: int | None = None, **kwargs: Any) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the plain JSON that Kauldron reads, references replaced by their values."""
        return json.dumps(encoding.encode(self, references=False), indent=indent, **kwargs)

    def to_json_best_effort(self, *, indent: int | None = None, **kwargs: Any) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns JSON to look at: what cannot be saved is marked, and loading it is refused."""
        return json.dumps(encoding.encode_best_effort(self), indent=indent, **kwargs)

    def to_yaml(self, **kwargs: Any) -> NoReturn:
        """Is refused: a config is saved as JSON, which cannot name code to run."""
        raise ConfigError("a config is not written as YAML; use konfig.save(cfg, path)")

    def __dir__(self) -> list[str]:
        return [*(key for key in self._fields if isinstance(key, str)), *dir(type(self))]


# Functions of others ask whether something is a mapping; ml_collections does not say so of its class.
_MUTABLE_MAPPING: Any = collections.abc.MutableMapping
_MUTABLE_MAPPING.register(ConfigDict)
