"""Turns values into what a config holds: dicts into nodes, classes and functions into constants, objects into errors.

The same rules read what `json.loads` returned: the marked dicts of a file (`{'__tuple__': [...]}`, `{'__ref__': ...}`)
are values of their types.
"""

from __future__ import annotations

import collections.abc
import enum
import functools
import pathlib
import types
from collections.abc import Mapping
from typing import Any, Final

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.calls.public_names import importable_name
from kauldron_core.konfig.tree import arguments, marked
from kauldron_core.konfig.tree.markers import CONST, ID, QUALNAME, RAW
from kauldron_core.konfig.tree.nodes import FieldReference, Node, blank, fields, is_a, kind_of, origin
from kauldron_core.konfig.tree.origins import Origin, caller
from kauldron_core.konfig.tree.references import OpRef, PathRef, Placeholder

MAX_DEPTH: Final = 64
"""Deepest nesting that is read; beyond it, an input is an attack or a mistake."""

_LEAVES = frozenset({type(None), bool, int, float, str, bytes, complex, slice, type(...), PathRef, Placeholder})
_LAUNCHER = "xm_job"
_SEQUENCES = frozenset({list, tuple})
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


class ResolvedObjectError(ConfigError):
    """A built object where a config holds the description of one."""


class Builder:
    """Converts one value and all that it holds.

    Args:
      node_class: The class of the nodes to make.
      trusted: Whether the nodes were written by code that runs here.
      origin: Where they were written; found from the call stack when it is not given.
      at: The field that is being set, for messages.
    """

    def __init__(
        self, node_class: type[Any], *, trusted: bool = True, origin: Origin | None = None, at: str = ""
    ) -> None:
        self._node_class = node_class
        self._trusted = trusted
        self._origin = origin
        self._at = at
        self._path: list[Any] = []
        self._root: Any = None
        self._made: dict[int, Any] = {}
        self._kept: list[Any] = []
        self._shared: dict[Any, Any] = {}
        self.left_out: list[str] = []

    def fill(self, node: Any, source: Mapping[Any, Any] | Node) -> None:
        """Fills an empty node with the fields of a dict or another config."""
        self._root = node
        if isinstance(source, self._node_class):
            self._take_over(node, source)
        elif is_a(source, (Mapping, Node)):
            self._fill(node, source)
        else:
            raise ConfigError(f"a config is made from a dict, not from {_described(source)}")

    def convert(self, value: Any) -> Any:
        """Returns the config form of a value.

        Raises:
          ResolvedObjectError: When it is a built object.
        """
        kind = kind_of(value)
        if kind in _LEAVES:
            return value
        if kind is dict:
            return self._dict(value)
        if kind in _SEQUENCES:
            return kind(self._entries(value))
        if kind is set or kind is frozenset:
            return self._set(value)
        if kind is OpRef:
            return self._operation(value)
        return self._other(value)

    def _take_over(self, node: Any, source: Any) -> None:
        """Makes `node` a shallow copy of `source`; references to `source` itself lead to the copy."""
        state = node.__dict__
        state.update({**vars(source), "_origin": origin(source) or state["_origin"]})
        own = {key: self._moved(value, source, node) for key, value in fields(source).items()}
        state["_fields"] = own

    def _moved(self, value: Any, source: Any, node: Any) -> Any:
        if type(value) is PathRef and value.konfig_node is source:
            return PathRef(node, value.konfig_parts, trusted=value.konfig_trusted)
        if type(value) is OpRef:
            args = tuple(self._moved(arg, source, node) for arg in value.konfig_args)
            kwargs = {name: self._moved(arg, source, node) for name, arg in value.konfig_kwargs.items()}
            return OpRef(value.konfig_op, args, kwargs, trusted=value.konfig_trusted)
        return value

    def _fill(self, node: Any, source: Any) -> None:
        self._made[id(source)] = node
        self._kept.append(source)  # Its id stays taken while this builder lives.
        if (shared_id := source.get(ID)) is not None:
            self._shared[self._hashable(shared_id)] = node
        target = fields(node)
        is_plain = QUALNAME not in source and CONST not in source
        for key, value in source.items():
            if key == ID:
                continue
            if key == _LAUNCHER and not self._trusted:
                self.left_out.append(paths.join(self.place(), key))
                continue
            if type(key) is str:
                if key.startswith(RAW):
                    key = marked.key(key, trusted=self._trusted)
                elif key.startswith("__"):
                    marked.refuse_unknown_marker(key, at=self.place())
            elif type(key) is int and not is_plain:
                key = str(key)
            target[key] = self.below(key, value)
        if not is_plain:
            self._check_call(node)

    def _check_call(self, node: Any) -> None:
        own = fields(node)
        if QUALNAME in own and CONST in own:
            raise ConfigError(f"{self.place()}: a node is either a call or a constant, not both")
        marker = QUALNAME if QUALNAME in own else CONST
        name = own[marker]
        if isinstance(name, str) and name.startswith(("kauldron.", "kauldron:")):
            own[marker] = name = "kauldron_core" + name.removeprefix("kauldron")
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{self.place()}: {name!r} is not a name of the form 'module:attribute'")
        if CONST in own and len(own) > 1:
            raise ConfigError(f"{self.place()}: the constant {name} cannot have arguments")
        if QUALNAME in own and self._trusted:
            arguments.check_call(node, at=self.place())

    def below(self, key: Any, value: Any) -> Any:
        """Converts a value that lies at `key` of the one being converted."""
        if kind_of(value) in _LEAVES:
            return value
        if len(self._path) >= MAX_DEPTH:
            raise ConfigError(f"{self.place()[:60]}...: nested deeper than {MAX_DEPTH} levels")
        self._path.append(key)
        try:
            return self.convert(value)
        finally:
            self._path.pop()

    def _entries(self, values: Any) -> list[Any]:
        return [self.below(index, value) for index, value in enumerate(values)]

    def _operation(self, value: OpRef) -> OpRef:
        """Puts the operands into config form; functions stay callable (they are named when they are saved)."""
        if all(type(arg) in _LEAVES for arg in (*value.konfig_args, *value.konfig_kwargs.values())):
            return value
        args = tuple(self._operand(index, arg) for index, arg in enumerate(value.konfig_args))
        kwargs = {name: self._operand(name, arg) for name, arg in value.konfig_kwargs.items()}
        return OpRef(value.konfig_op, args, kwargs, trusted=value.konfig_trusted)

    def _operand(self, key: Any, arg: Any) -> Any:
        return arg if isinstance(arg, (type, *_FUNCTIONS)) else self.below(key, arg)

    def _set(self, value: Any) -> Any:
        entries = self._entries(sorted(value, key=repr))
        if any(isinstance(entry, (self._node_class, list)) for entry in entries):
            raise ConfigError(f"{self.place()}: a set in a config holds plain values only; use a tuple")
        return kind_of(value)(entries)

    def _dict(self, value: Any) -> Any:
        if id(value) in self._made:
            return self._made[id(value)]
        is_marked = len(value) <= marked.MAX_MARKED and any(type(key) is str and key in marked.MARKED for key in value)
        if is_marked:
            return marked.Marked(self, value).read()
        if ID in value and (len(value) == 1 or self._hashable(value[ID]) in self._shared):
            return self._known(value[ID])  # Kauldron writes the content again each time.
        node = blank(self._node_class, trusted=self._trusted, origin=self.origin)
        if self._root is None:
            self._root = node
        self._fill(node, value)
        return node

    def _known(self, shared_id: Any) -> Any:
        try:
            return self._shared[self._hashable(shared_id)]
        except KeyError:
            raise ConfigError(f"{self.place()}: no node before it has the __id__ {shared_id!r}") from None

    def _hashable(self, shared_id: Any) -> int | str:
        if isinstance(shared_id, (int, str)):
            return shared_id
        raise ConfigError(f"{self.place()}: {shared_id!r} is not an __id__")

    @property
    def root(self) -> Any:
        """The outermost node: what references of a file start from."""
        if self._root is None:
            raise ConfigError(f"{self.place()}: a reference needs a config around it")
        return self._root

    @property
    def shared(self) -> dict[Any, Any]:
        """What files share, by the number that they gave it."""
        return self._shared

    @property
    def is_trusted(self) -> bool:
        """Whether the nodes were written by code that runs here."""
        return self._trusted

    @property
    def origin(self) -> Origin | None:
        """Where the nodes were written."""
        if self._origin is None and self._trusted:
            self._origin = caller()
        return self._origin

    def _other(self, value: Any) -> Any:
        if is_a(value, self._node_class):
            return value
        if is_a(value, FieldReference):
            return self._field_reference(value)
        if is_a(value, (dict, Node, types.MappingProxyType)):
            return self._dict(dict(value.items()))
        as_config = getattr(kind_of(value), "__konfig_value__", None)
        if as_config is not None:
            return self._dict(as_config(value))
        if is_a(value, functools.partial):
            return self._partial(value)
        if is_a(value, types.UnionType):
            return self._union(value)
        if is_a(value, (type, *_FUNCTIONS)) or _is_function_like(value):
            return self._constant(value)
        if is_a(value, (enum.Enum, pathlib.PurePath)):
            return value
        if is_a(value, str):
            return str(value)
        if marked.is_number_of_numpy(value):
            return value
        if is_a(value, Mapping) and kind_of(value).__name__ in ("FrozenDict", "immutabledict"):
            return self._dict(dict(value))
        if hasattr(kind_of(value), "__as_konfig__"):
            return self.convert(value.__as_konfig__())
        raise ResolvedObjectError(
            f"{self.place()}: a config cannot hold {_described(value)}. Import its module inside "
            "`with konfig.imports():`, so that the same code gives a config (in a notebook, wrap the line in "
            "`with konfig.mock_modules():`), or turn the object into a config with `konfig.export(...)`."
        )

    def _field_reference(self, value: Any) -> Any:
        """Placeholders of ml_collections become ours; its references hold closures and cannot."""
        state = value.__dict__
        if state["_ops"] or is_a(state["_value"], FieldReference):
            raise ConfigError(f"{self.place()}: write cfg.ref.NAME for a reference; this one is from ml_collections")
        known = self._made.get(id(value))
        if known is None:
            known = Placeholder(value.get_type(), required=state["_required"])
            known.value = self.convert(state["_value"])
            self._made[id(value)] = known
            self._kept.append(value)
        return known

    def _partial(self, value: functools.partial[Any]) -> Any:
        positional = {str(index): arg for index, arg in enumerate((value.func, *value.args))}
        return self._dict({QUALNAME: arguments.PARTIAL, **positional, **value.keywords})

    def _union(self, value: types.UnionType) -> Any:
        first, *others = (None if kind is type(None) else kind for kind in value.__args__)
        node: Any = first
        for other in others:
            node = {QUALNAME: "operator:or_", "0": node, "1": other}
        return self.convert(node)

    def _constant(self, value: Any) -> Any:
        """Names a class or function; one that has no importable name (a lambda) stays, and is refused when saved."""
        name = importable_name(value)
        return self._dict({CONST: name}) if name else value

    def place(self) -> str:
        """Returns where the value being converted belongs, for messages."""
        return paths.join(self._at or "cfg", *self._path)


def _is_function_like(value: Any) -> bool:
    """Jitted and otherwise wrapped functions: objects that are what their name in a module leads to."""
    return callable(value) and isinstance(getattr(value, "__qualname__", None), str) and bool(importable_name(value))


def _described(value: Any) -> str:
    kind = kind_of(value)
    text = repr(value) if not is_a(value, collections.abc.Sized) else ""
    text = text if 0 < len(text) <= 60 and "\n" not in text else ""
    return f"an object of type {kind.__module__}.{kind.__qualname__}" + (f" ({text})" if text else "")
