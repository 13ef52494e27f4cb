"""Annotations as checkers: what decides whether a value fits, and under which sizes.

Arrays and what holds them are ours, because sizes must be bound across arguments; every other annotation is
beartype's work.
"""

from __future__ import annotations

import abc
import collections.abc
import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from kauldron_core.ktyping import messages
from kauldron_core.ktyping.array_types import ArrayType
from kauldron_core.ktyping.matching import Bindings

CHECKED_CLASSES: dict[type, Callable[[Any], str | None]] = {}
"""Dataclasses under `typechecked`, with the function that says what is wrong with an instance."""


class Checker(abc.ABC):
    """Decides about one annotation."""

    @abc.abstractmethod
    def extend(self, value: Any, bindings: Bindings, label: str) -> Iterator[Bindings]:
        """Yields every assignment that extends `bindings` under which `value` fits; none when it does not fit."""

    @abc.abstractmethod
    def explain(self, value: Any, bindings: Bindings) -> str:
        """Returns why `value` does not fit."""


@dataclasses.dataclass(frozen=True)
class _Array(Checker):
    kind: ArrayType

    def extend(self, value: Any, bindings: Bindings, label: str) -> Iterator[Bindings]:
        yield from self.kind.extend(value, bindings, label)

    def explain(self, value: Any, bindings: Bindings) -> str:
        return messages.explain_array(self.kind, value, bindings)


@dataclasses.dataclass(frozen=True)
class _Plain(Checker):
    """An annotation without arrays in it."""

    hint: Any
    fits: Callable[[Any], bool]

    def extend(self, value: Any, bindings: Bindings, label: str) -> Iterator[Bindings]:
        if self.fits(value):
            yield bindings

    def explain(self, value: Any, bindings: Bindings) -> str:
        return f"it is {messages.describe(value)} of type {type(value).__name__}"


@dataclasses.dataclass(frozen=True)
class _Union(Checker):
    options: tuple[Checker, ...]

    def extend(self, value: Any, bindings: Bindings, label: str) -> Iterator[Bindings]:
        for option in self.options:
            yield from option.extend(value, bindings, label)

    def explain(self, value: Any, bindings: Bindings) -> str:
        return "; ".join(dict.fromkeys(option.explain(value, bindings) for option in self.options))


@dataclasses.dataclass(frozen=True)
class _Items(Checker):
    """A container whose items hold arrays: `items` lists (place, item, checker), or None when it is another type."""

    kind: str
    items: Callable[[Any], list[tuple[str, Any, Checker]] | None]
    own_scope: bool = False

    def extend(self, value: Any, bindings: Bindings, label: str) -> Iterator[Bindings]:
        items = self.items(value)
        if items is None:
            return
        if self.own_scope:
            if any(True for _ in extend_items(items, Bindings(), label)):
                yield bindings
        else:
            yield from extend_items(items, bindings, label)

    def explain(self, value: Any, bindings: Bindings) -> str:
        items = self.items(value)
        if items is None:
            return f"it is {messages.describe(value)}, not {self.kind}"
        return explain_items(items, Bindings() if self.own_scope else bindings)


@dataclasses.dataclass(frozen=True)
class _CheckedClass(Checker):
    cls: type

    def extend(self, value: Any, bindings: Bindings, label: str) -> Iterator[Bindings]:
        if isinstance(value, self.cls) and CHECKED_CLASSES[self.cls](value) is None:
            yield bindings

    def explain(self, value: Any, bindings: Bindings) -> str:
        if not isinstance(value, self.cls):
            return f"it is a {type(value).__name__}"
        return CHECKED_CLASSES[self.cls](value) or "it fits on its own"


PLAIN = _Plain
"""The checkers that know nothing of sizes."""


def extend_items(items: list[tuple[str, Any, Checker]], bindings: Bindings, label: str) -> Iterator[Bindings]:
    """Yields every assignment under which all items fit together."""
    if not items:
        yield bindings
        return
    (place, item, checker), rest = items[0], items[1:]
    for found in checker.extend(item, bindings, f"{label}{place}"):
        yield from extend_items(rest, found, label)


def explain_items(items: list[tuple[str, Any, Checker]], bindings: Bindings) -> str:
    """Returns which item is the first that does not fit, and why."""
    reached = [bindings]
    for place, item, checker in items:
        further = [found for start in reached for found in checker.extend(item, start, place)]
        if not further:
            return f"{place}: {messages.describe(item)}: {checker.explain(item, reached[0])}"
        reached = further
    return "its items disagree with each other"


def checker_for(hint: Any) -> Checker:
    """Returns the checker of an annotation.

    Raises:
      TypeError: If the annotation can't be checked at all.
    """
    try:
        return _checker_for(hint)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _make(hint)


@functools.lru_cache(maxsize=4096)
def _checker_for(hint: Any) -> Checker:
    return _make(hint)


def _make(hint: Any) -> Checker:
    if isinstance(hint, Checker):
        return hint
    if isinstance(hint, ArrayType):
        return _Array(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return checker_for(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return _Union(tuple(checker_for(option) for option in arguments))
    if isinstance(hint, type) and hint in CHECKED_CLASSES:
        return _CheckedClass(hint)
    if typing.is_typeddict(hint):
        return _typed_dict(hint)
    if any(map(_is_ours, arguments)):
        return _container(hint, origin, arguments)
    return _Plain(hint, _plain(hint))


def _is_ours(hint: Any) -> bool:
    """Returns whether an annotation has arrays, or classes that we check, somewhere inside."""
    if isinstance(hint, Checker | ArrayType) or typing.is_typeddict(hint):
        return True
    if isinstance(hint, type) and hint in CHECKED_CLASSES:
        return True
    return any(map(_is_ours, typing.get_args(hint)))


def _container(hint: Any, origin: Any, arguments: tuple[Any, ...]) -> Checker:
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is ...):
        checkers = tuple(checker_for(argument) for argument in arguments)

        def fixed(value: Any) -> list[tuple[str, Any, Checker]] | None:
            if not isinstance(value, tuple) or len(value) != len(checkers):
                return None
            return [(f"[{i}]", item, checker) for i, (item, checker) in enumerate(zip(value, checkers, strict=True))]

        return _Items(f"a tuple of {len(checkers)}", fixed)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        keys, values = (checker_for(argument) for argument in arguments)

        def mapping(value: Any) -> list[tuple[str, Any, Checker]] | None:
            if not isinstance(value, origin):
                return None
            found = [(f"[{key!r}]", item, values) for key, item in value.items()]
            return [(f" key {key!r}", key, keys) for key in value] + found

        return _Items(f"a {origin.__name__}", mapping)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Collection):
        inner = checker_for(arguments[0])

        def collection(value: Any) -> list[tuple[str, Any, Checker]] | None:
            if not isinstance(value, origin):
                return None
            return [(f"[{index}]", item, inner) for index, item in enumerate(value)]

        return _Items(f"a {origin.__name__}", collection)
    # Callable[[Float["b"]], ...], type[...], Iterator[...]: nothing inside can be looked at without using it up.
    return _Plain(hint, _plain(origin))


def _typed_dict(hint: Any) -> Checker:
    checkers = {key: checker_for(inner) for key, inner in typing.get_type_hints(hint).items()}

    def items(value: Any) -> list[tuple[str, Any, Checker]] | None:
        if not isinstance(value, dict) or not hint.__required_keys__ <= value.keys() <= checkers.keys():
            return None
        return [(f"[{key!r}]", value[key], checkers[key]) for key in value]

    return _Items(f"a {hint.__name__} with the keys {', '.join(checkers)}", items, own_scope=True)


def _plain(hint: Any) -> Callable[[Any], bool]:
    if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
        return lambda value: True
    if hint is None or hint is type(None):
        return lambda value: value is None
    if hint is float:  # PEP 484: where a float is expected an int is fine.
        return lambda value: isinstance(value, float | int)
    if hint is complex:
        return lambda value: isinstance(value, complex | float | int)
    if isinstance(hint, type) and typing.get_origin(hint) is None and not getattr(hint, "_is_protocol", False):
        return lambda value: isinstance(value, hint)
    return functools.partial(_beartype_fits, hint)


def _beartype_fits(hint: Any, value: Any) -> bool:
    import beartype.door  # Heavy to import: only when an annotation needs it.
    import beartype.roar

    try:
        return beartype.door.is_bearable(value, hint, conf=beartype.BeartypeConf(is_pep484_tower=True))
    except beartype.roar.BeartypeDecorHintException:
        return True  # An annotation that has no meaning at run time.
