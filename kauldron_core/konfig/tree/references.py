"""References: values of a config that follow another place of it, kept as data.

A `PathRef` is a node and a path from it; an `OpRef` is the name of an operation and its operands. Both can be
written to a file and read back, which closures cannot. A `Placeholder` is a place without a value yet.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.tree.nodes import Node


class ReferenceFailed(ConfigError, AttributeError):
    """A reference to a place that does not exist, or one that leads back to itself."""


class RequiredValueMissing(ConfigError):
    """A required placeholder that nobody filled."""


class Reference:
    """A value that follows other places of the config. Operators on it give references again."""

    __slots__ = ("konfig_trusted",)
    konfig_trusted: bool

    def __getattr__(self, name: str) -> Reference:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.konfig_step(name)

    def __getitem__(self, key: Any) -> Reference:
        return self.konfig_step(key)

    def konfig_step(self, part: Any) -> Reference:
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> OpRef:
        return OpRef("call", (self, *args), kwargs)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise ConfigError(f"{describe(self)}.{name} cannot be set through a reference; set it on the config itself")

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{describe(self)} is a reference and has no truth value while the config is written; "
            "combine conditions with & and |, or wrap the decision in konfig.ref_fn"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{describe(self)} is a reference and cannot be iterated over; wrap the loop in konfig.ref_fn")

    def __contains__(self, item: object) -> NoReturn:
        raise TypeError(f"{describe(self)} is a reference: `in` cannot wait for it; wrap the test in konfig.ref_fn")

    def __repr__(self) -> str:
        return f"<reference {describe(self)}>"

    # Equality is lazy like every other operator, so a reference is told apart by identity only.
    __hash__ = object.__hash__

    def __add__(self, other: Any) -> OpRef:
        return OpRef("add", (self, other))

    def __radd__(self, other: Any) -> OpRef:
        return OpRef("add", (other, self))

    def __sub__(self, other: Any) -> OpRef:
        return OpRef("sub", (self, other))

    def __rsub__(self, other: Any) -> OpRef:
        return OpRef("sub", (other, self))

    def __mul__(self, other: Any) -> OpRef:
        return OpRef("mul", (self, other))

    def __rmul__(self, other: Any) -> OpRef:
        return OpRef("mul", (other, self))

    def __truediv__(self, other: Any) -> OpRef:
        return OpRef("truediv", (self, other))

    def __rtruediv__(self, other: Any) -> OpRef:
        return OpRef("truediv", (other, self))

    def __floordiv__(self, other: Any) -> OpRef:
        return OpRef("floordiv", (self, other))

    def __rfloordiv__(self, other: Any) -> OpRef:
        return OpRef("floordiv", (other, self))

    def __mod__(self, other: Any) -> OpRef:
        return OpRef("mod", (self, other))

    def __rmod__(self, other: Any) -> OpRef:
        return OpRef("mod", (other, self))

    def __pow__(self, other: Any) -> OpRef:
        return OpRef("pow", (self, other))

    def __rpow__(self, other: Any) -> OpRef:
        return OpRef("pow", (other, self))

    def __and__(self, other: Any) -> OpRef:
        return OpRef("and", (self, other))

    def __rand__(self, other: Any) -> OpRef:
        return OpRef("and", (other, self))

    def __or__(self, other: Any) -> OpRef:
        return OpRef("or", (self, other))

    def __ror__(self, other: Any) -> OpRef:
        return OpRef("or", (other, self))

    def __xor__(self, other: Any) -> OpRef:
        return OpRef("xor", (self, other))

    def __rxor__(self, other: Any) -> OpRef:
        return OpRef("xor", (other, self))

    def __neg__(self) -> OpRef:
        return OpRef("neg", (self,))

    def __pos__(self) -> OpRef:
        return OpRef("pos", (self,))

    def __invert__(self) -> OpRef:
        return OpRef("invert", (self,))

    def __abs__(self) -> OpRef:
        return OpRef("abs", (self,))

    def __lt__(self, other: Any) -> OpRef:
        return OpRef("lt", (self, other))

    def __le__(self, other: Any) -> OpRef:
        return OpRef("le", (self, other))

    def __gt__(self, other: Any) -> OpRef:
        return OpRef("gt", (self, other))

    def __ge__(self, other: Any) -> OpRef:
        return OpRef("ge", (self, other))

    def __eq__(self, other: Any) -> Any:
        return OpRef("eq", (self, other))

    def __ne__(self, other: Any) -> Any:
        return OpRef("ne", (self, other))

    def to_int(self) -> OpRef:
        """Returns a reference to the value as an int."""
        return OpRef("int", (self,))

    def to_float(self) -> OpRef:
        """Returns a reference to the value as a float."""
        return OpRef("float", (self,))

    def to_str(self) -> OpRef:
        """Returns a reference to the value as text."""
        return OpRef("str", (self,))


class PathRef(Reference):
    """The value at a path below a node. Follows whatever is there when it is read."""

    __slots__ = ("konfig_node", "konfig_parts")
    konfig_node: Node
    konfig_parts: tuple[Any, ...]

    def __init__(self, node: Node, parts: tuple[Any, ...] = (), *, trusted: bool = True) -> None:
        object.__setattr__(self, "konfig_node", node)
        object.__setattr__(self, "konfig_parts", parts)
        object.__setattr__(self, "konfig_trusted", trusted)

    def konfig_step(self, part: Any) -> PathRef:
        return PathRef(self.konfig_node, (*self.konfig_parts, part), trusted=self.konfig_trusted)

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_path_ref, (self.konfig_node, self.konfig_parts, self.konfig_trusted)


class OpRef(Reference):
    """An operation on values, at least one of which is a reference."""

    __slots__ = ("konfig_args", "konfig_kwargs", "konfig_op")
    konfig_op: str
    konfig_args: tuple[Any, ...]
    konfig_kwargs: dict[str, Any]

    def __init__(
        self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, trusted: bool = True
    ) -> None:
        object.__setattr__(self, "konfig_op", op)
        object.__setattr__(self, "konfig_args", args)
        object.__setattr__(self, "konfig_kwargs", kwargs or {})
        object.__setattr__(self, "konfig_trusted", trusted)

    def konfig_step(self, part: Any) -> OpRef:
        return OpRef("get", (self, part), trusted=self.konfig_trusted)

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_op_ref, (self.konfig_op, self.konfig_args, self.konfig_kwargs, self.konfig_trusted)


class Placeholder:
    """A place whose value comes later. Fields that hold the same placeholder share its value.

    Attributes:
      type: What the value has to be.
      required: Whether reading it before it is filled is an error.
      value: The value, None while there is none.
    """

    __slots__ = ("required", "type", "value")

    def __init__(self, type: type[Any], *, required: bool = False, value: Any = None) -> None:
        self.type = type
        self.required = required
        self.value = value

    @property
    def type_name(self) -> str:
        """The type as messages show it."""
        return getattr(self.type, "__name__", str(self.type))

    def __repr__(self) -> str:
        required = ", required=True" if self.required else ""
        return f"placeholder({self.type_name}{required})" if self.value is None else repr(self.value)


_MAX_SHOWN: Final = 200
_MAX_SHOWN_DEPTH: Final = 8

LAZY: Final = frozenset({PathRef, OpRef, Placeholder})
"""The types of fields that are not their own value."""


def placeholder(field_type: type[Any], required: bool = False) -> Any:
    """Returns a place that has a type and no value yet: it reads as None, or raises when it is `required`."""
    return Placeholder(field_type, required=required)


def required(field_type: type[Any] = object) -> Any:
    """Returns a place that must be filled before the config is resolved."""
    return Placeholder(field_type, required=True)


def is_reference(value: Any) -> bool:
    """Returns whether `value` is a reference (`cfg.ref.x`, or something computed from one)."""
    return isinstance(value, Reference)


def describe(value: Any) -> str:
    """Returns a reference as the user wrote it (`cfg.ref.a + 1`), cut where it is very long or deep."""
    text = _described(value, 0)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def _described(value: Any, depth: int) -> str:
    if depth > _MAX_SHOWN_DEPTH:
        return "..."
    if isinstance(value, PathRef):
        return paths.join("cfg.ref", *value.konfig_parts)
    if not isinstance(value, OpRef):
        return getattr(value, "__qualname__", None) or repr(value)
    op, args = value.konfig_op, [_operand(arg, depth + 1) for arg in value.konfig_args]
    if op == "get":
        return paths.join(args[0], value.konfig_args[1])
    if op == "call":
        named = [f"{name}={_described(arg, depth + 1)}" for name, arg in value.konfig_kwargs.items()]
        return f"{args[0]}({', '.join(args[1:] + named)})"
    if op in SIGNS:
        return f" {SIGNS[op]} ".join(args) if len(args) == 2 else SIGNS[op] + args[0]
    return f"{op}({', '.join(args)})"


def _operand(value: Any, depth: int) -> str:
    is_compound = isinstance(value, OpRef) and value.konfig_op in SIGNS
    return f"({_described(value, depth)})" if is_compound else _described(value, depth)


def _make_path_ref(node: Node, parts: tuple[Any, ...], trusted: bool) -> PathRef:
    return PathRef(node, parts, trusted=trusted)


def _make_op_ref(op: str, args: tuple[Any, ...], kwargs: dict[str, Any], trusted: bool) -> OpRef:
    return OpRef(op, args, kwargs, trusted=trusted)


SIGNS: Final = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and": "&",
    "or": "|",
    "xor": "^",
    "neg": "-",
    "pos": "+",
    "invert": "~",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}
