"""What a checked function may ask about its own dimensions."""

from __future__ import annotations

import builtins
import sys
from types import FrameType
from typing import Any, TypeVar

from kauldron_core.ktyping import decorator, dims, scope
from kauldron_core.ktyping.checkers import checker_for
from kauldron_core.ktyping.errors import AmbiguousDimensionError, DimensionError, NoActiveScopeError
from kauldron_core.ktyping.matching import computed_size
from kauldron_core.ktyping.scope import ShapeScope

_T = TypeVar("_T")


def check_type(value: _T, expected_type: Any, *, nested_ok: bool = False) -> _T:
    """Returns `value` if it fits an annotation together with the sizes known so far, and learns its sizes.

    Args:
      value: The value.
      expected_type: The annotation.
      nested_ok: Whether a function that is not checked may ask, too: with the sizes of the checked function that
        called it, or without any where there is none.

    Raises:
      KTypeCheckError: If it does not fit.
      NoActiveScopeError: If the calling function is not checked.
    """
    if nested_ok and scope.innermost() is None:
        where = ShapeScope("check_type", None)
    else:
        where = scope_of(sys._getframe(1), "check_type", nested_ok=nested_ok)
    decorator.check(where, "the value", expected_type, checker_for(expected_type), value)
    return value


def isinstance(obj: Any, class_or_tuple: Any) -> bool:
    """Returns whether `obj` fits an annotation, or one of a tuple of them, with the sizes known so far; learns nothing.

    A function that is not checked knows no sizes: what fits by itself fits there.
    """
    hints = class_or_tuple if builtins.isinstance(class_or_tuple, tuple) else (class_or_tuple,)
    code = sys._getframe(1).f_code
    return any(scope.fits(checker_for(hint).extend, obj, code) for hint in hints)


def shape(spec_str: str, *, nested_ok: bool = False) -> tuple[int, ...]:
    """Returns the sizes that a spec stands for here: `shape("*b n 3 h*w")`.

    Args:
      spec_str: Dimensions whose sizes are known.
      nested_ok: Whether a function that is not checked may ask with the sizes of the checked one that called it.

    Raises:
      ValueError: If a name is unknown or not decided yet.
      NoActiveScopeError: If the calling function is not checked.
    """
    return sizes_of(spec_str, sys._getframe(1), "shape", nested_ok=nested_ok)


def sizes_of(spec: str, frame: FrameType, asked: str, *, nested_ok: bool = False) -> tuple[int, ...]:
    """Returns the sizes that a spec stands for in the function of a frame; `asked` names the question in errors."""
    where = scope_of(frame, asked, nested_ok=nested_ok)
    sizes: list[int] = []
    for wanted in dims.parse(spec):
        sizes += _sizes(wanted, where)
    return tuple(sizes)


def get_current_scope(*, nested_ok: bool = False, stacklevel: int = 0) -> ShapeScope:
    """Sizes known in the running function, which must be checked.

    Args:
      nested_ok: Whether a function that is not checked gets that of the checked one that called it.
      stacklevel: How many functions above the calling one is meant.

    Raises:
      NoActiveScopeError: If it is not checked.
    """
    return scope_of(sys._getframe(1 + stacklevel), "get_current_scope", nested_ok=nested_ok)


class _Dims:
    """`dim["n"]` is the size of a dimension, `dim["*b"]` those of a run; `dim["k"] = 3` binds a new one."""

    def __getitem__(self, name: str) -> Any:
        value = _decided(name.lstrip("*+"), scope_of(sys._getframe(1), "dim"), name)
        if builtins.isinstance(value, tuple) and not name.startswith(("*", "+")):
            raise ValueError(f"dim[{name!r}]: {name} stands for the run of axes {value}; ask for dim['*{name}']")
        return value

    def __setitem__(self, name: str, size: int) -> None:
        where = scope_of(sys._getframe(1), "dim")
        for bindings in where.assignments:
            if name in bindings.sizes:
                raise ValueError(f"dim[{name!r}]: it is {bindings.sizes[name]} already and can't be changed")
        where.narrow([bindings.bind(name, size, "assignment") for bindings in where.assignments])

    def __contains__(self, name: str) -> bool:
        return any(name.lstrip("*+") in bindings.sizes for bindings in scope_of(sys._getframe(1), "dim").assignments)


dim = _Dims()


def _sizes(wanted: dims.Dim, where: ShapeScope) -> tuple[int, ...]:
    match wanted:
        case dims.Fixed():
            return (wanted.size,)
        case dims.Named() | dims.Variadic() if wanted.name:
            value = _decided(wanted.name, where, wanted.text)
            return value if builtins.isinstance(value, tuple) else (value,)
        case dims.Computed():
            return (computed_size(wanted, where.assignments[0]),)
        case _:
            raise ValueError(f"shape: {wanted} has no size of its own")


def _decided(name: str, where: ShapeScope, text: str) -> Any:
    values = {bindings.sizes.get(name) for bindings in where.assignments}
    if values == {None}:
        known = ", ".join(where.assignments[0].sizes) or "none"
        raise DimensionError(f"unknown dimension {text!r}. Known here: {known}.")
    if len(values) > 1:
        raise AmbiguousDimensionError(text, values)
    return values.pop()


def scope_of(frame: FrameType, asked: str, *, nested_ok: bool = False) -> ShapeScope:
    """Returns the scope of the function of a frame; `asked` names the question in the error.

    Raises:
      NoActiveScopeError: If it is not checked.
    """
    where = scope.current(frame.f_code)
    if where is None and nested_ok:
        where = scope.innermost()
    if where is None:
        raise NoActiveScopeError(
            f"{asked} was called in {frame.f_code.co_qualname}, which is not under @typechecked or `with typechecked()`"
        )
    return where
