"""Which values an annotation accepts: certain misfits are refused, what cannot be decided passes."""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import enum
import inspect
import os
import types
import typing
from typing import Any, cast

from kauldron_core.errors import shown
from kauldron_core.konfig.calls.cache import cached
from kauldron_core.konfig.calls.targets import display

UNKNOWN: Any = inspect.Parameter.empty
"""The annotation of what has none, or one that cannot be evaluated."""

_LISTS = (list, tuple, set, frozenset)
_ANY_SEQUENCE = (abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection, abc.Container, abc.Reversible)
_CALLABLE = cast(Any, abc.Callable)
_WRAPPERS = (typing.Final, typing.ClassVar, typing.Required, typing.NotRequired, typing.Annotated)


class Misfit(Exception):
    """A value that the annotation certainly does not accept; the text names what is expected."""


def fit(value: Any, annotation: Any) -> Any:
    """Returns `value` as the annotation takes it: an int becomes a float for `float`, a list a tuple for `tuple`.

    Raises:
      Misfit: When the annotation certainly does not accept it.
    """
    if type(value) is annotation:
        return value  # The most frequent case, without the questions that the others need.
    annotation = unwrapped(annotation)
    if annotation is UNKNOWN or annotation is Any or annotation is object:
        return value
    if is_union(annotation):
        return _fit_union(value, annotation)
    if annotation is None or annotation is type(None):
        return _require(value is None, value, annotation)
    if typing.get_origin(annotation) is typing.Literal:
        choices = typing.get_args(annotation)
        return _require(any(value == choice and type(value) is type(choice) for choice in choices), value, annotation)
    if value is None:
        return _require(not isinstance(annotation, type) and not typing.get_origin(annotation), value, annotation)
    if annotation in _SCALARS:
        return _fit_scalar(value, annotation)
    return _fit_other(value, annotation)


def unwrapped(annotation: Any) -> Any:
    """Returns what `Annotated`, `NewType`, `Final` and type aliases stand for."""
    if type(annotation) is type:
        return annotation
    while True:
        if typing.get_origin(annotation) in _WRAPPERS:
            annotation = typing.get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        elif isinstance(annotation, dataclasses.InitVar):
            annotation = cast(Any, annotation).type
        elif isinstance(annotation, typing.TypeVar):
            return annotation.__bound__ or UNKNOWN
        elif isinstance(annotation, (str, typing.ForwardRef, typing.ParamSpec)):
            return UNKNOWN
        else:
            return annotation


def is_union(annotation: Any) -> bool:
    """Returns whether the annotation is `A | B`, `Union[A, B]` or `Optional[A]`."""
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


@cached
def members(annotation: Any) -> tuple[Any, ...]:
    """Returns the alternatives of a union, flattened; anything else is its own only one."""
    annotation = unwrapped(annotation)
    if not is_union(annotation):
        return (annotation,)
    return tuple(member for part in typing.get_args(annotation) for member in members(part))


def is_text(annotation: Any) -> bool:
    """Returns whether every alternative beside None is a text or a file path."""
    kinds = [member for member in members(annotation) if member not in (None, type(None))]
    return bool(kinds) and all(_is_text_member(member) for member in kinds)


def has_text(annotation: Any) -> bool:
    """Returns whether a text or a file path is among the alternatives."""
    return any(_is_text_member(member) for member in members(annotation))


def accepts_none(annotation: Any) -> bool:
    """Returns whether None is among the alternatives."""
    return any(member in (None, type(None)) for member in members(annotation))


def element(annotation: Any, key: Any) -> Any:
    """Returns the annotation of what a container so annotated holds at `key`."""
    for member in members(annotation):
        origin, args = typing.get_origin(member), typing.get_args(member)
        if not isinstance(origin, type) or not args:
            continue
        if origin is tuple and args[-1] is not Ellipsis:
            return args[key] if isinstance(key, int) and -len(args) <= key < len(args) else UNKNOWN
        if issubclass(origin, abc.Mapping):
            return args[-1]
        if issubclass(origin, abc.Iterable):
            return args[0]
    return UNKNOWN


def described(annotation: Any) -> str:
    """Returns the annotation in short: `float | Array | Callable`, `tuple[int, ...]`."""
    annotation = unwrapped(annotation)
    if annotation is UNKNOWN:
        return "any value"
    if annotation is Ellipsis:
        return "..."
    if is_union(annotation):
        # Not through the cache of `members`, in which `A | B` and `B | A` are the same.
        return " | ".join(dict.fromkeys(described(member) for member in typing.get_args(annotation)))
    if annotation in (None, type(None)):
        return "None"
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " | ".join(repr(choice) for choice in args)
    name = str(getattr(origin or annotation, "__name__", annotation)).rpartition(".")[2]
    if not args or origin is _CALLABLE:
        return name
    return f"{name}[{', '.join(described(argument) for argument in args)}]"


def choices(annotation: Any) -> list[Any]:
    """Returns the values that the `Literal`s among the alternatives list."""
    literals = [member for member in members(annotation) if typing.get_origin(member) is typing.Literal]
    return [choice for literal in literals for choice in typing.get_args(literal)]


def is_anything(annotation: Any) -> bool:
    """Returns whether the annotation says nothing: there is none, or `Any` is among the alternatives."""
    return any(member is UNKNOWN or member is Any or member is object for member in members(annotation))


def kind_of(value: Any) -> str:
    """Returns what a value is, for messages: `the int 3`, `the text 'abc'`, `a list`."""
    if value is None:
        return "None"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    if isinstance(value, (bool, int, float, complex)):
        return f"the {type(value).__name__} {_number(value)}"
    if is_node(value):
        return display(str(value["__qualname__"] if "__qualname__" in value else value["__const__"]))
    return f"a {'dict' if isinstance(value, abc.Mapping) else type(value).__name__}"


def is_node(value: Any) -> bool:
    """Returns whether `value` describes a call or a constant."""
    return isinstance(value, abc.Mapping) and ("__qualname__" in value or "__const__" in value)


def to_float(value: int | float) -> float:
    """Returns an int or float as a float.

    Raises:
      Misfit: When the int is too large for one.
    """
    try:
        return float(value)
    except OverflowError:
        raise Misfit("a number that fits a float (this int is too large for one)") from None


_SCALARS = (bool, int, float, complex, str, bytes)


def _number(value: complex) -> str:
    try:
        return repr(value) if not isinstance(value, int) or value.bit_length() < 200 else "of many digits"
    except ValueError:
        return "of many digits"


def _require(condition: bool, value: Any, annotation: Any) -> Any:
    if not condition:
        raise Misfit(described(annotation))
    return value


def _is_text_member(member: Any) -> bool:
    member = unwrapped(member)
    if typing.get_origin(member) is typing.Literal:
        return all(isinstance(choice, str) or choice is None for choice in typing.get_args(member))
    origin = typing.get_origin(member) or member
    return isinstance(origin, type) and (_is_below(origin, str) or _is_below(origin, os.PathLike))


def _fit_union(value: Any, annotation: Any) -> Any:
    alternatives = members(annotation)
    # The value's own type first, then numbers, so that an int becomes a float for `Array | float` too.
    exact = [member for member in alternatives if type(value) is member]
    scalars = [member for member in alternatives if member in _SCALARS]
    for member in (*exact, *scalars, *alternatives):
        try:
            return fit(value, member)
        except Misfit:
            continue
    raise Misfit(described(annotation))


def _fit_scalar(value: Any, annotation: Any) -> Any:
    if is_node(value):
        # What a call returns is not known before it is made; only a class is.
        return value
    if annotation is float and type(value) is int:
        return to_float(value)
    if annotation is complex and type(value) in (int, float):
        return complex(value)
    return _require(type(value) is annotation, value, annotation)


def _fit_other(value: Any, annotation: Any) -> Any:
    origin: Any = typing.get_origin(annotation) or annotation
    args = typing.get_args(annotation)
    if not isinstance(origin, type) or is_node(value):
        return value
    kind = cast(Any, origin)
    if kind in _LISTS or kind in _ANY_SEQUENCE:
        return _fit_sequence(value, kind, args, annotation)
    if _is_below(kind, enum.Enum):
        return _require(isinstance(value, kind), value, annotation)
    if _is_below(kind, abc.Mapping):
        return _fit_mapping(value, args, annotation)
    if kind is _CALLABLE:
        return _require(callable(value), value, annotation)
    if _is_below(kind, os.PathLike):
        return _require(isinstance(value, (str, os.PathLike)), value, annotation)
    if type(value) in (int, float, complex) and not _is_record(kind):
        return value  # What takes arrays takes numbers, and nothing in its class says so.
    return _require(_may_be(value, kind), value, annotation)


def _may_be(value: Any, kind: Any) -> bool:
    try:
        return isinstance(value, kind)
    except TypeError:  # Some protocols and typed dicts refuse the question.
        return True


def _is_record(kind: Any) -> bool:
    """Returns whether a class holds fields, so that no number, text or list can stand for it."""
    has_fields = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
    return has_fields and not getattr(kind, "_is_protocol", False)


def _is_below(kind: Any, other: Any) -> bool:
    try:
        return issubclass(kind, other)
    except TypeError:  # Some protocols refuse the question.
        return False


def _fit_mapping(value: Any, args: tuple[Any, ...], annotation: Any) -> Any:
    _require(isinstance(value, abc.Mapping), value, annotation)
    entries = cast("abc.Mapping[Any, Any]", value)
    if len(args) != 2:
        return entries
    fitted = {key: fit(entries[key], args[1]) for key in entries}
    # The same object where nothing changed: a config would lose its references on the way through a dict.
    return entries if all(fitted[key] is entries[key] for key in entries) else fitted


def _fit_sequence(value: Any, kind: Any, args: tuple[Any, ...], annotation: Any) -> Any:
    _require(isinstance(value, _LISTS), value, annotation)
    items = list(cast("list[Any]", value))
    if kind is tuple and args and args[-1] is not Ellipsis:
        args = () if args == ((),) else args
        _require(len(items) == len(args), value, annotation)
        items = [fit(item, arg) for item, arg in zip(items, args, strict=True)]
    elif args:
        items = [fit(item, args[0]) for item in items]
    make: Any = kind if kind in _LISTS else type(cast("list[Any]", value))
    return make(items)
