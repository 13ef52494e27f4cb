"""Matching of shapes against dimensions: every assignment that fits, not just the first.

An assignment (`Bindings`) maps names to sizes, or to tuples of sizes for runs of axes. With several runs in one
spec, or with unions, more than one assignment can fit an argument; the caller keeps them all until later arguments
decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kauldron_core.ktyping import expressions
from kauldron_core.ktyping.dims import (
    Anything,
    Choice,
    Computed,
    Dim,
    Fixed,
    Maybe,
    Named,
    Variadic,
    is_of_fixed_rank,
    least_axes,
)

Size = Any
"""An int, or one of JAX's symbolic dimensions."""

Shape = tuple[Size | None, ...]
"""Sizes of an array's axes; None is a size that its library does not know (TensorFlow)."""


class Bindings(NamedTuple):
    """One consistent assignment.

    Attributes:
      sizes: Sizes by name; a tuple for a run of axes.
      origins: Where each name got its size, for messages.
      pending: Sizes whose expression waits for a name: (dimension, size found, where).
      arguments: The function's arguments, for `{expr}` dimensions.
    """

    sizes: Mapping[str, Any] = MappingProxyType({})
    origins: Mapping[str, str] = MappingProxyType({})
    pending: tuple[tuple[Computed, Size, str], ...] = ()
    arguments: Mapping[str, Any] = MappingProxyType({})

    def bind(self, name: str, value: Any, origin: str) -> Bindings:
        """Returns the assignment with one more name."""
        if not name:
            return self
        origins = {**self.origins, name: self.origins.get(name, origin)}
        return Bindings({**self.sizes, name: value}, origins, self.pending, self.arguments)

    def settle(self) -> Bindings | None:
        """Returns the assignment with every expression checked that can be by now, None when one is wrong."""
        if not self.pending:
            return self
        waiting = []
        for dim, size, origin in self.pending:
            try:
                wanted = computed_size(dim, self)
            except expressions.Unbound:
                waiting.append((dim, size, origin))
                continue
            if not may_equal(size, wanted):
                return None
        return self._replace(pending=tuple(waiting))


def matches(dims: tuple[Dim, ...], shape: Shape, bindings: Bindings, origin: str) -> Iterator[Bindings]:
    """Yields every assignment that extends `bindings` and under which `shape` fits `dims`."""
    for found in _match(dims, shape, bindings, origin):
        settled = found.settle()
        if settled is not None:
            yield settled


def may_equal(a: Size | None, b: Size | None) -> bool:
    """Returns whether two sizes can be equal; symbolic ones pass unless they provably differ."""
    if a is None or b is None:
        return True
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    try:
        return not (a > b or a < b)
    except Exception:
        return True


def computed_size(dim: Computed, bindings: Bindings) -> Size:
    """Returns the size that an expression stands for.

    Raises:
      Unbound: If a name has no size yet.
    """
    values = {**bindings.sizes, **bindings.arguments} if dim.of_arguments else bindings.sizes
    return expressions.evaluate(dim.tree, values)


def _match(dims: tuple[Dim, ...], shape: Shape, bindings: Bindings, origin: str) -> Iterator[Bindings]:
    if not dims:
        if not shape:
            yield bindings
        return
    head, rest = dims[0], dims[1:]
    if isinstance(head, Variadic):
        for length in _lengths(head, rest, shape, bindings):
            bound = _bind_run(head, shape[:length], bindings, origin)
            if bound is not None:
                yield from _match(rest, shape[length:], bound, origin)
        return
    if isinstance(head, Maybe):
        yield from _match(rest, shape, bindings, origin)
    if shape:
        for bound in _bind_axis(head, shape[0], bindings, origin):
            yield from _match(rest, shape[1:], bound, origin)


def _lengths(head: Variadic, rest: tuple[Dim, ...], shape: Shape, bindings: Bindings) -> Iterable[int]:
    most = len(shape) - least_axes(rest)
    if is_of_fixed_rank(rest):
        return [most] if most >= head.least else []
    bound = bindings.sizes.get(head.name)
    if isinstance(bound, tuple) and not head.broadcast:
        return [len(bound)] if head.least <= len(bound) <= most else []
    return range(head.least, most + 1)


def _bind_run(head: Variadic, sizes: Shape, bindings: Bindings, origin: str) -> Bindings | None:
    bound = bindings.sizes.get(head.name)
    if bound is None:
        return bindings.bind(head.name, sizes, origin)
    if not isinstance(bound, tuple):
        bound = (bound,)
    if head.broadcast:
        larger = _broadcast(bound, sizes)
        return None if larger is None else bindings.bind(head.name, larger, origin)
    return bindings if len(bound) == len(sizes) and all(map(may_equal, bound, sizes)) else None


def _bind_axis(dim: Dim, size: Size | None, bindings: Bindings, origin: str) -> Iterator[Bindings]:
    match dim:
        case Fixed():
            if may_equal(size, dim.size):
                yield bindings
        case Anything():
            yield bindings
        case Named():
            bound = _bind_name(dim, size, bindings, origin)
            if bound is not None:
                yield bound
        case Choice():
            for option in dim.options:
                yield from _bind_axis(option, size, bindings, origin)
        case Computed():
            yield bindings._replace(pending=(*bindings.pending, (dim, size, origin)))
        case _:
            raise TypeError(f"{dim!r} is not one axis")


def _bind_name(dim: Named, size: Size | None, bindings: Bindings, origin: str) -> Bindings | None:
    if size is None or not dim.name:  # Not known to its library: nothing to learn, nothing to refuse.
        return bindings
    bound = bindings.sizes.get(dim.name)
    if isinstance(bound, tuple):  # The name also stands for a run of axes.
        return bindings if len(bound) == 1 and may_equal(bound[0], size) else None
    if dim.broadcast and isinstance(size, int) and size == 1:
        return bindings
    if bound is None:
        return bindings.bind(dim.name, size, origin)
    return bindings if may_equal(bound, size) else None


def _broadcast(a: Shape, b: Shape) -> Shape | None:
    """Returns the shape that both broadcast to by NumPy's rule, None when they do not."""
    length = max(len(a), len(b))
    padded = zip((1,) * (length - len(a)) + a, (1,) * (length - len(b)) + b, strict=True)
    sizes = []
    for left, right in padded:
        if not (left == 1 or right == 1 or may_equal(left, right)):
            return None
        sizes.append(right if left == 1 else left)
    return tuple(sizes)
