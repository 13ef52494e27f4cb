"""Turns a config into what JSON can hold, and says which values it cannot."""

from __future__ import annotations

import base64
import enum
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.calls.public_names import importable_name
from kauldron_core.konfig.tree import marked, markers
from kauldron_core.konfig.tree.copying import anchored
from kauldron_core.konfig.tree.evaluate import Evaluation
from kauldron_core.konfig.tree.labels import shown_key
from kauldron_core.konfig.tree.nodes import PLAIN, Node, fields, is_a, is_node, kind_of
from kauldron_core.konfig.tree.references import OpRef, PathRef, Placeholder, describe
from kauldron_core.konfig.tree.size import check_size
from kauldron_core.konfig.tree.walking import walk

_MAX_PROBLEMS: Final = 20
_AFTER_RAW: Final = "__raw__>"


class Unsavable(Exception):
    """A value that a file cannot carry; its path grows while the exception climbs."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.parts: list[Any] = []


def encode(root: Any, *, references: bool, sort: bool = False) -> Any:
    """Returns the JSON form of a config.

    Args:
      root: The config.
      references: Whether references stay references, or are replaced by their values.
      sort: Whether nodes are visited in the order of their keys, so that the result does not depend on it.

    Raises:
      ConfigError: With the path of each value that JSON cannot hold.
    """
    if not references:
        check_size(root, Evaluation(), is_shared=False)
    try:
        return Encoder(root, references=references, sort=sort).value(root)
    except Unsavable:
        raise ConfigError("; ".join(_problems(root, references=references))) from None
    except RecursionError:
        raise ConfigError("the config is nested too deep to be saved") from None


def encode_best_effort(root: Any) -> Any:
    """Returns JSON to look at: what it cannot hold is replaced by a mark, and a config with a mark is not loaded."""
    return Encoder(root, references=True, strict=False).value(root)


def _problems(root: Any, *, references: bool) -> list[str]:
    """Returns one line for each value that cannot be saved, in a second and slower pass."""
    encoder = Encoder(root, references=references, strict=False)
    encoder.value(root)
    shown = [f"{paths.join('cfg', *parts)}: cannot be saved: {reason}" for parts, reason in encoder.problems]
    more = len(shown) - _MAX_PROBLEMS
    return shown[:_MAX_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])


class Encoder:
    """Writes one config.

    Args:
      root: The config.
      references: Whether references stay references, or are replaced by their values.
      strict: Whether a value that JSON cannot hold is an error, or is replaced by a mark and noted in `problems`.
      sort: Whether nodes are visited in the order of their keys.
    """

    def __init__(self, root: Any, *, references: bool, strict: bool = True, sort: bool = False) -> None:
        self._root = root
        self._references = references
        self._strict = strict
        self._sort = sort
        self._evaluation = Evaluation()
        self._written: dict[int, dict[str, Any]] = {}
        self._open: set[int] = set()
        self._next_id = 0
        self._places: dict[int, tuple[Any, ...]] | None = None
        self._path: list[Any] = []
        self.problems: list[tuple[tuple[Any, ...], str]] = []

    def value(self, value: Any) -> Any:
        """Returns the JSON form of one value."""
        if type(value) in PLAIN:
            return value
        if is_node(value):
            return self._node(value)
        return self._writers.get(kind_of(value), Encoder._other)(self, value)

    def _node(self, node: Node) -> dict[str, Any]:
        place = id(node)
        if place in self._written:
            return self._again(place)
        out: dict[str, Any] = {}
        self._written[place] = out
        is_open = not self._references
        if is_open:
            self._open.add(place)
        own = fields(node)
        is_quick = self._strict
        node_class = type(node)
        for key in own if not self._sort else _sorted(own):
            value = own[key]
            kind = value.__class__
            if kind is node_class and is_quick:
                value = self._node(value)
            elif kind not in PLAIN:
                value = self._entry(key, value, node)
            if type(key) is not str or markers.RAW <= key < _AFTER_RAW:  # That is: it starts with RAW.
                key = self._key(key)
            out[key] = value
        if is_open:
            self._open.discard(place)
        return out

    def _entry(self, key: Any, value: Any, node: Node | None = None) -> Any:
        """Returns the JSON form of what lies at `key`; the problems in it get to know the path."""
        if self._strict:
            return self._field(node, key, value)
        self._path.append(key if node is None else shown_key(fields(node), key))
        try:
            return self._field(node, key, value)
        except Unsavable as problem:
            self.problems.append((tuple(self._path), str(problem)))
            return {markers.UNSAVED: str(problem)}
        finally:
            self._path.pop()

    def _key(self, key: Any) -> str:
        try:
            return raw_key(key)
        except Unsavable as problem:
            if self._strict:
                raise
            self.problems.append(((*self._path, str(key)), str(problem)))
            return f"{markers.RAW}?"

    def _field(self, node: Node | None, key: Any, value: Any) -> Any:
        if not self._references and node is not None and type(value) in (PathRef, OpRef):
            value = self._evaluation.read(node, key)
        return self.value(value)

    def _again(self, place: int) -> dict[str, Any]:
        if place in self._open:
            raise Unsavable("a config that contains itself cannot be written without references")
        first = self._written[place]
        if markers.ID not in first:
            first[markers.ID] = self._next_id
            self._next_id += 1
        return {markers.ID: first[markers.ID]} if self._references else first

    def _list(self, values: Any) -> list[Any]:
        return [item if type(item) in PLAIN else self._entry(index, item) for index, item in enumerate(values)]

    def _tuple(self, values: tuple[Any, ...]) -> Any:
        entries = self._list(values)
        return {markers.TUPLE: entries} if self._references else entries

    def _set(self, values: set[Any] | frozenset[Any]) -> Any:
        marker = markers.SET if isinstance(values, set) else markers.FROZENSET
        return {marker: sorted((self.value(item) for item in values), key=repr)}

    def _slice(self, value: slice) -> Any:
        return {markers.SLICE: [self.value(bound) for bound in (value.start, value.stop, value.step)]}

    def _ellipsis(self, value: Any) -> Any:
        return {markers.ELLIPSIS: True}

    def _bytes(self, value: bytes) -> Any:
        return {markers.BYTES: base64.b64encode(value).decode()}

    def _complex(self, value: complex) -> Any:
        return {markers.COMPLEX: [value.real, value.imag]}

    def _path_ref(self, ref: PathRef) -> Any:
        if not self._references:
            return self.value(self._evaluation.value(ref))
        if ref.konfig_node is self._root:
            # The usual case, without the walk over all nodes that finds where another node is.
            return {markers.REF: paths.format(ref.konfig_parts)}
        if self._places is None:
            self._places = {id(node): path for path, node in walk(self._root, operands=False)}
        anchor, parts = anchored(ref, self._places)
        if anchor is None:
            raise Unsavable(f"{describe(ref)} leads out of the config that is saved")
        return {markers.REF: paths.format((*self._places[id(anchor)], *parts))}

    def _op_ref(self, ref: OpRef) -> Any:
        if not self._references:
            return self.value(self._evaluation.value(ref))
        out: dict[str, Any] = {markers.OP: ref.konfig_op, "args": self._list(ref.konfig_args)}
        if ref.konfig_kwargs:
            out["kwargs"] = {name: self._entry(name, arg) for name, arg in ref.konfig_kwargs.items()}
        return out

    def _placeholder(self, value: Placeholder) -> Any:
        if not self._references:
            return self.value(value.value)
        if id(value) in self._written:
            return {markers.PLACEHOLDER: None, **self._again(id(value))}
        name = importable_name(value.type)
        if name is None:
            raise Unsavable(f"the type of the placeholder, {value.type!r}, has no importable name")
        out: dict[str, Any] = {markers.PLACEHOLDER: name}
        self._written[id(value)] = out
        if value.required:
            out["required"] = True
        if value.value is not None:
            out["value"] = self.value(value.value)
        return out

    def _other(self, value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return {markers.ENUM: enum_name(value)}
        if isinstance(value, pathlib.PurePath):
            return _path(value) if self._references else str(value)
        if marked.is_number_of_numpy(value):
            return _numpy(value)
        if is_a(value, Mapping):
            return {
                key if isinstance(key, str) else raw_key(key): self._entry(key, item) for key, item in value.items()
            }
        if getattr(kind_of(value), "__konfig_value__", None) is not None:
            return value.__konfig_value__()
        name = importable_name(value) if callable(value) else None
        if name is not None:
            return {markers.CONST: name}
        if callable(value):
            shown = getattr(value, "__qualname__", kind_of(value).__qualname__)
            raise Unsavable(f"{shown} has no importable name (a lambda, or local to a function); use one of a module")
        raise Unsavable(
            f"an object of type {kind_of(value).__module__}.{kind_of(value).__qualname__} cannot be written"
        )

    _writers: ClassVar[dict[type, Any]] = {
        list: _list,
        tuple: _tuple,
        set: _set,
        frozenset: _set,
        slice: _slice,
        type(...): _ellipsis,
        bytes: _bytes,
        complex: _complex,
        PathRef: _path_ref,
        OpRef: _op_ref,
        Placeholder: _placeholder,
    }


def raw_key(key: Any) -> str:
    """Returns the text under which a file keeps a key that is not an ordinary text."""
    if isinstance(key, enum.Enum):
        return f"{markers.RAW}enum {enum_name(key)}"
    if isinstance(key, (type(None), bool, int, float, str, bytes, tuple)):
        return f"{markers.RAW}{key!r}"
    raise Unsavable(f"the key {key!r} cannot be written")


def enum_name(member: enum.Enum) -> str:
    """Returns `module:Class.NAME`."""
    name = importable_name(type(member))
    if name is None:
        raise Unsavable(f"{member!r} belongs to a local class")
    return f"{name}.{member.name}"


def _path(value: pathlib.PurePath) -> dict[str, Any]:
    out: dict[str, Any] = {markers.PATH: str(value)}
    if type(value).__module__.startswith("etils."):
        out["class"] = "etils.epath:Path"
    elif not isinstance(value, pathlib.Path):
        out["class"] = f"pathlib:{type(value).__name__}"
    return out


def _numpy(value: Any) -> Any:
    is_dtype = not hasattr(value, "item")
    dtype = value if is_dtype else value.dtype
    text = marked.dtype_text(dtype)
    if text is None:
        raise Unsavable(f"the dtype {dtype} has no text that gives it back")
    if is_dtype:
        return {markers.DTYPE: text}
    # Times as the integer that they are: as objects of Python they lose their unit.
    number = int(value.astype("int64")) if dtype.kind in "mM" else value.item()
    if isinstance(number, complex):
        number = [number.real, number.imag]
    elif not isinstance(number, (bool, int, float)):
        raise Unsavable(f"a {dtype.name} cannot be written")
    return {markers.SCALAR: [text, number]}


def _sorted(keys: Iterable[Any]) -> list[Any]:
    try:
        return sorted(keys)
    except TypeError:  # Keys of several types.
        return sorted(keys, key=lambda key: (type(key).__name__, str(key)))
