"""Scopes: what one checked call knows about the sizes of its dimensions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, MappingProxyType
from typing import Any

from kauldron_core.ktyping.matching import Bindings

_MAX_ASSIGNMENTS = 256


class ShapeScope:
    """All assignments of sizes to names that fit the values seen so far, and those values for messages.

    Attributes:
      title: Name of the function, for messages.
      code: Code object of the function that may ask for its dimensions.
      assignments: The assignments that are still possible; never empty.
      seen: (label, annotation, value) of every value checked.
    """

    def __init__(self, title: str, code: CodeType | None, arguments: dict[str, Any] | None = None):
        self.title = title
        self.code = code
        self.assignments: list[Bindings] = [Bindings(arguments=MappingProxyType(arguments or {}))]
        self.seen: list[tuple[str, Any, Any]] = []

    def narrow(self, possible: Iterable[Bindings]) -> bool:
        """Keeps the assignments `possible` and returns True, or returns False when there are none.

        At most 256 are kept: specs with that many readings say nothing.
        """
        kept: list[Bindings] = []
        for bindings in possible:
            if not any(bindings.sizes == other.sizes and bindings.pending == other.pending for other in kept):
                kept.append(bindings)
            if len(kept) == _MAX_ASSIGNMENTS:
                break
        if kept:
            self.assignments = kept
        return bool(kept)

    @property
    def candidates(self) -> tuple[Mapping[str, Any], ...]:
        """The assignments that are still possible: sizes by name, tuples of them for runs of axes."""
        return tuple(MappingProxyType(dict(bindings.sizes)) for bindings in self.assignments)

    @property
    def arguments(self) -> dict[str, Any]:
        """The values checked so far by the names that messages give them."""
        return {label: value for label, _, value in self.seen}

    @property
    def annotations(self) -> dict[str, Any]:
        """The annotations of `arguments`."""
        return {label: hint for label, hint, _ in self.seen}

    def copy(self) -> ShapeScope:
        """Returns a scope that knows the same and learns on its own."""
        other = ShapeScope(self.title, self.code)
        other.assignments, other.seen = list(self.assignments), list(self.seen)
        return other


class _Stack(threading.local):
    def __init__(self):
        self.scopes: list[ShapeScope] = []


_stack = _Stack()


@contextlib.contextmanager
def active(scope: ShapeScope) -> Iterator[ShapeScope]:
    """Makes `scope` the one that the running function asks."""
    _stack.scopes.append(scope)
    try:
        yield scope
    finally:
        _stack.scopes.pop()


def current(code: CodeType) -> ShapeScope | None:
    """Returns the scope of the function whose code is `code` (or that encloses it), None if it isn't checked."""
    if not _stack.scopes:
        return None
    scope = _stack.scopes[-1]
    if scope.code is None or code is scope.code:
        return scope
    is_inner = code.co_filename == scope.code.co_filename and code.co_qualname.startswith(
        f"{scope.code.co_qualname}.<locals>."
    )
    return scope if is_inner else None


def innermost() -> ShapeScope | None:
    """Returns the scope that is active in this thread."""
    return _stack.scopes[-1] if _stack.scopes else None


def fits(extend: Callable[[Any, Bindings, str], Iterator[Bindings]], value: Any, code: CodeType) -> bool:
    """Returns whether `value` fits with the sizes that the function with this code knows; none if it isn't checked."""
    where = current(code)
    known = [Bindings()] if where is None else where.assignments
    return any(True for start in known for _ in extend(value, start, ""))
