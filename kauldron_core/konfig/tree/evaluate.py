"""Reads fields that are references: follows paths and applies operations, under the rules of trust."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.konfig.calls.targets import find_target, split
from kauldron_core.konfig.tree import operations
from kauldron_core.konfig.tree.building import Builder
from kauldron_core.konfig.tree.labels import shown_key
from kauldron_core.konfig.tree.markers import CONST
from kauldron_core.konfig.tree.nodes import Node, fields, is_a, is_node, is_sequence, kind_of, stored_key
from kauldron_core.konfig.tree.references import (
    LAZY,
    OpRef,
    PathRef,
    Placeholder,
    Reference,
    ReferenceFailed,
    RequiredValueMissing,
    describe,
)
from kauldron_core.konfig.trusting import rules as trusting

_MISSING: Any = object()
_MAX_DEPTH = 64


class Evaluation:
    """One reading of a config. Each lazy field is computed once, and a circle is found.

    Args:
      overlay: Values that replace fields, by `(id(node), key)`.
      trusted: False treats every reference as one that came from a file.
    """

    def __init__(self, overlay: Mapping[tuple[int, Any], Any] | None = None, *, trusted: bool = True) -> None:
        self._overlay = overlay or {}
        self._trusted = trusted
        self._known: dict[tuple[int, Any], Any] = {}
        self._open: set[tuple[int, Any]] = set()

    def read(self, node: Node, key: Any) -> Any:
        """Returns the value of a field (which the node must have, or the overlay)."""
        place = (id(node), key)
        if place in self._overlay:
            return self._overlay[place]
        value = fields(node)[key]
        return value if type(value) not in LAZY else self._lazy(place, value)

    def entries(self, value: Any) -> Iterator[tuple[Any, Any]]:
        """Yields what a node or list holds, by the key that paths show; fields of nodes are read."""
        if is_node(value):
            own = fields(value)
            for key in own:
                yield shown_key(own, key), self.read(value, key)
        else:
            yield from enumerate(value)

    def value(self, value: Any) -> Any:
        """Returns what a value stands for: itself, unless it is a reference or a placeholder."""
        if type(value) is Placeholder:
            if value.value is None and value.required:
                raise RequiredValueMissing(f"a required {value.type_name} has no value yet")
            return value.value
        if type(value) is PathRef:
            return self._follow(value)
        return self._apply(value) if type(value) is OpRef else value

    def _lazy(self, place: tuple[int, Any], value: Any) -> Any:
        if place in self._known:
            return self._known[place]
        if place in self._open:
            raise ReferenceFailed(f"{describe(value)} leads back to itself")
        if len(self._open) >= _MAX_DEPTH:
            raise ReferenceFailed(f"{describe(value)} is at the end of a chain of more than {_MAX_DEPTH} references")
        self._open.add(place)
        try:
            result = self.value(value)
        except RecursionError:
            raise ReferenceFailed(f"{describe(value)} is nested too deep") from None
        finally:
            self._open.discard(place)
        self._known[place] = result
        return result

    def _follow(self, ref: PathRef) -> Any:
        value: Any = ref.konfig_node
        for part in ref.konfig_parts:
            value = self._step(value, part, ref)
        return value

    def _step(self, value: Any, part: Any, ref: Reference) -> Any:
        """Returns what lies one step below `value`: a field, an entry or an attribute."""
        if is_node(value):
            return self._field(value, part, ref)
        if value is None:
            return None  # The reference waits for a placeholder.
        try:
            if not isinstance(part, str):
                return self.value(value[part])
            if is_a(value, Mapping) and part in value:
                return value[part]
            return self._attribute(value, part, ref)
        except (LookupError, TypeError, AttributeError) as error:
            raise ReferenceFailed(f"{describe(ref)}: {error}") from None

    def _field(self, node: Node, part: Any, ref: Reference) -> Any:
        key = stored_key(node, part)
        if (id(node), key) not in self._overlay and key not in fields(node):
            raise ReferenceFailed(unknown_name("field", str(part), map(str, fields(node)), at=describe(ref)))
        return self.read(node, key)

    def _attribute(self, value: Any, name: str, ref: Reference) -> Any:
        if not self._is_trusted(ref) and name not in operations.SAFE_METHODS.get(kind_of(value), ()):
            raise ConfigError(
                f"{describe(ref)}: a config read from a file may not use {name!r} of a {kind_of(value).__name__}"
            )
        return getattr(value, name)

    def _apply(self, ref: OpRef) -> Any:
        op = ref.konfig_op
        if op == "call":
            return self._call(ref)
        args = [self._operand(arg) for arg in ref.konfig_args]
        if op == "get":
            return self._step(args[0], args[1], ref)
        if op in operations.EQUALITIES:
            return operations.EQUALITIES[op](*args)
        if any(arg is None for arg in args):
            return None
        try:
            return operations.OPERATIONS[op](*args)
        except (TypeError, ValueError, ArithmeticError) as error:
            if isinstance(error, ConfigError):
                raise ReferenceFailed(f"{describe(ref)}: {error}") from None
            raise ReferenceFailed(f"{describe(ref)}: {type(error).__name__}: {error}") from error

    def _call(self, ref: OpRef) -> Any:
        named, *args = (self._operand(arg) for arg in ref.konfig_args)
        function = self._callable(named, tuple(args), ref)
        made = function(*args, **{name: self._operand(arg) for name, arg in ref.konfig_kwargs.items()})
        # Methods of plain values make plain values; what else a file may call, a node of it names.
        return made if self._is_trusted(ref) or not is_node(named) else _distrusted(made, kind_of(named))

    def _operand(self, value: Any) -> Any:
        """Returns the value of an operand, in lists too."""
        if is_sequence(value):
            return kind_of(value)(self._operand(item) for item in value)
        return self.value(value)

    def _callable(self, function: Any, args: tuple[Any, ...], ref: OpRef) -> Callable[..., Any]:
        is_trusted = self._is_trusted(ref)
        if is_node(function) and CONST in function:
            if not is_trusted:
                trusting.check_call(*split(function[CONST]))
            return find_target(function[CONST], trusted=is_trusted)
        if not is_trusted:
            if not _is_safe_method(function):
                raise ConfigError(f"{describe(ref)}: a config read from a file may not call {function!r}")
            operations.check_method(function, args)
        return function

    def _is_trusted(self, ref: Reference) -> bool:
        return self._trusted and ref.konfig_trusted


def _distrusted(made: Any, node_class: type[Any]) -> Any:
    """Returns what a function in a file made; dicts in it are nodes that came from that file, whatever they name."""
    if is_sequence(made):
        entries = (_distrusted(item, node_class) for item in made)
        return kind_of(made)(entries) if kind_of(made) in (list, tuple) else made
    return Builder(node_class, trusted=False).convert(made) if is_a(made, Mapping) and not is_node(made) else made


def _is_safe_method(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    return name in operations.SAFE_METHODS.get(kind_of(owner), ()) and function == getattr(owner, name, _MISSING)
