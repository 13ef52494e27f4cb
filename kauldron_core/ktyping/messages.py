"""What a failed check prints: function, inputs, inferred dimensions, and the axis that disagrees."""

from __future__ import annotations

from typing import Any

from kauldron_core.ktyping import array_types, expressions
from kauldron_core.ktyping.array_types import ArrayType
from kauldron_core.ktyping.dims import (
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
from kauldron_core.ktyping.errors import KTypeCheckError, text_of_sizes
from kauldron_core.ktyping.matching import Bindings, Shape, computed_size, may_equal
from kauldron_core.ktyping.scope import ShapeScope

_MAX_TEXT = 80


def failure(scope: ShapeScope, label: str, annotation: Any, value: Any, problem: str) -> KTypeCheckError:
    """Returns the error for `value`; its contents are never printed."""
    lines = [f"{label} does not fit {text_of(annotation)}: {problem}", f"Function: {scope.title}", "Inputs:"]
    lines += [f"  {name}: {text_of(hint)} = {describe(seen)}" for name, hint, seen in scope.seen]
    lines += [f"  {label}: {text_of(annotation)} = {describe(value)}", "Inferred Dims:"]
    lines += [f"  {line}" for line in _dims_lines(scope.assignments[0])] or ["  none"]
    return KTypeCheckError("\n".join(lines), scope)


def describe(value: Any) -> str:
    """Returns type, dtype and shape of a value, or its short text when it is no array."""
    if array_types.is_array_class(type(value)):
        (dtype,) = array_types.describe_dtypes(value) or ("?",)
        module = type(value).__module__.partition(".")[0].replace("jaxlib", "jax")
        shape = ", ".join("?" if size is None else str(size) for size in array_types.shape_of(value))
        return f"{dtype}[{shape}] ({module})"
    if isinstance(value, list | tuple | dict | set):
        return f"{type(value).__name__} of {len(value)}"
    text = repr(value) if isinstance(value, str | int | float | complex | bool | None) else type(value).__name__
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def text_of(annotation: Any) -> str:
    """Returns an annotation as the user would write it."""
    if isinstance(annotation, type) and annotation.__module__ in ("builtins", "__main__"):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


def explain_array(kind: ArrayType, value: Any, bindings: Bindings) -> str:
    """Returns why an array does not fit: dtype, number of axes, or the first axis that disagrees."""
    dtypes = array_types.describe_dtypes(value)
    if dtypes is None:
        return f"it is a {type(value).__name__}, not an array"
    if not kind.accepts_kind(value):
        return _explain_kind(kind, value)
    if not kind.accepts_dtype(dtypes):
        return f"its dtype is {', '.join(dtypes)}"
    return explain_shape(kind.dims or (), array_types.shape_of(value), bindings)


def _explain_kind(kind: ArrayType, value: Any) -> str:
    if array_types.is_number(value):
        return f"it is the Python number {value}, not an array"
    libraries = ", ".join(sorted(kind.libraries))
    return f"it is an array of {array_types.library_of(type(value))}; {kind.name} takes those of {libraries}"


def explain_shape(dims: tuple[Dim, ...], shape: Shape, bindings: Bindings) -> str:
    """Returns which axis of `shape` disagrees with `dims`, with both sizes and where the other one was bound."""
    least = least_axes(dims)
    if len(shape) < least or (is_of_fixed_rank(dims) and len(shape) > least):
        return f"it has {_count(len(shape))}, the annotation {_count(least)}" + (
            "" if is_of_fixed_rank(dims) else " or more"
        )
    runs = [dim for dim in dims if isinstance(dim, Variadic)]
    if any(isinstance(dim, Maybe) for dim in dims) or len(runs) > 1:
        return f"its shape {text_of_sizes(shape)} fits in no way together with what is bound"
    return _explain_axes(_spread(dims, len(shape)), shape, bindings) or "its axes disagree with earlier sizes"


def _spread(dims: tuple[Dim, ...], length: int) -> list[tuple[Dim, int | None]]:
    """Lines the dimensions up with axes; for a run, also which of its axes it is."""
    extra = length - (len(dims) - 1)
    axes: list[tuple[Dim, int | None]] = []
    for dim in dims:
        axes += [(dim, index) for index in range(extra)] if isinstance(dim, Variadic) else [(dim, None)]
    return axes


def _explain_axes(axes: list[tuple[Dim, int | None]], shape: Shape, bindings: Bindings) -> str | None:
    own: dict[str, Any] = {}
    for axis, ((dim, index), size) in enumerate(zip(axes, shape, strict=True)):
        wanted = _wanted(dim, index, size, bindings, own)
        if wanted is not None:
            return f"axis {axis} is {size}, but {wanted}"
    return _explain_run(axes, shape, bindings)


def _wanted(dim: Dim, index: int | None, size: Any, bindings: Bindings, own: dict[str, Any]) -> str | None:
    match dim:
        case Fixed() if not may_equal(size, dim.size):
            return f"the annotation says {dim.size}"
        case Named():
            bound = bindings.sizes.get(dim.name, own.get(dim.name))
            if bound is None:
                own[dim.name] = size
            elif not may_equal(bound, size) and not (dim.broadcast and size == 1):
                return f"{dim.name} is {bound}{_where(dim.name, bindings)}"
        case Computed():
            try:
                wanted = computed_size(dim, Bindings({**bindings.sizes, **own}, arguments=bindings.arguments))
            except expressions.Unbound:
                return None
            return None if may_equal(size, wanted) else f"{dim} is {wanted}"
        case Choice():
            fits = any(_wanted(option, None, size, bindings, dict(own)) is None for option in dim.options)
            return None if fits else f"it must be one of {dim}"
        case Variadic() if isinstance(bound := bindings.sizes.get(dim.name), tuple) and index is not None:
            if index < len(bound) and not may_equal(bound[index], size) and not dim.broadcast:
                return f"axis {index} of *{dim.name} is {bound[index]}{_where(dim.name, bindings)}"
    return None


def _explain_run(axes: list[tuple[Dim, int | None]], shape: Shape, bindings: Bindings) -> str | None:
    runs = [dim for dim, _ in axes if isinstance(dim, Variadic)]
    if not runs or runs[0].name not in bindings.sizes:
        return None
    found = tuple(size for (dim, _), size in zip(axes, shape, strict=True) if dim is runs[0])
    name, bound = runs[0].name, bindings.sizes[runs[0].name]
    return f"{runs[0]} is {text_of_sizes(found)} here, but {text_of_sizes(bound)}{_where(name, bindings)}"


def _where(name: str, bindings: Bindings) -> str:
    origin = bindings.origins.get(name)
    return f" (bound by {origin})" if origin else ""


def _dims_lines(bindings: Bindings) -> list[str]:
    lines = []
    for name, size in bindings.sizes.items():
        text = f"*{name}: {' '.join(map(str, size))}" if isinstance(size, tuple) else f"{name}: {size}"
        lines.append(text + _where(name, bindings))
    return lines


def _count(number: int) -> str:
    return f"{number} axis" if number == 1 else f"{number} axes"
