"""What a checked function may ask about its own dimensions."""

from __future__ import annotations

import builtins
import sys
from typing import Any, TypeVar

from kauldron_core.ktyping import checkers, decorator, dims, messages, scope
from kauldron_core.ktyping.checkers import checker_for
from kauldron_core.ktyping.matching import Bindings, computed_size
from kauldron_core.ktyping.scope import Scope

_T = TypeVar("_T")


class NoActiveScopeError(RuntimeError):
    """The calling function is not under `typechecked`."""


def check_type(value: _T, annotation: Any) -> _T:
    """Returns `value` if it fits the annotation together with the sizes known so far, and learns its sizes.

    Raises:
      TypeCheckError: If it does not fit.
      NoActiveScopeError: If the calling function is not checked.
    """
    decorator.check(_scope_of_caller("check_type"), "the value", annotation, checker_for(annotation), value)
    return value


def isinstance(value: Any, annotation: Any) -> bool:
    """Returns whether `value` fits the annotation together with the sizes known so far; learns nothing.

    Annotations without arrays in them need no checked caller.
    """
    checker = checker_for(annotation)
    if builtins.isinstance(checker, checkers.PLAIN):
        return any(True for _ in checker.extend(value, Bindings(), ""))
    where = _scope_of_caller("isinstance")
    return any(True for start in where.assignments for _ in checker.extend(value, start, ""))


def shape(spec: str) -> tuple[int, ...]:
    """Returns the sizes that `spec` stands for here: `shape("*b n 3 h*w")`.

    Raises:
      ValueError: If a name is unknown or not decided yet.
      NoActiveScopeError: If the calling function is not checked.
    """
    where = _scope_of_caller("shape")
    sizes: list[int] = []
    for dim in dims.parse(spec):
        sizes += _sizes(dim, where)
    return tuple(sizes)


class _Dims:
    """`dim["n"]` is the size of a dimension, `dim["*b"]` those of a run; `dim["k"] = 3` binds a new one."""

    def __getitem__(self, name: str) -> Any:
        value = _decided(name.lstrip("*+"), _scope_of_caller("dim"), name)
        if builtins.isinstance(value, tuple) and not name.startswith(("*", "+")):
            raise ValueError(f"dim[{name!r}]: {name} stands for the run of axes {value}; ask for dim['*{name}']")
        return value

    def __setitem__(self, name: str, size: int) -> None:
        where = _scope_of_caller("dim")
        for bindings in where.assignments:
            if name in bindings.sizes:
                raise ValueError(f"dim[{name!r}]: it is {bindings.sizes[name]} already and can't be changed")
        where.narrow([bindings.bind(name, size, "assignment") for bindings in where.assignments])

    def __contains__(self, name: str) -> bool:
        return any(name.lstrip("*+") in bindings.sizes for bindings in _scope_of_caller("dim").assignments)


dim = _Dims()


def _sizes(wanted: dims.Dim, where: Scope) -> tuple[int, ...]:
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


def _decided(name: str, where: Scope, text: str) -> Any:
    values = {bindings.sizes.get(name) for bindings in where.assignments}
    if values == {None}:
        known = ", ".join(where.assignments[0].sizes) or "none"
        raise ValueError(f"unknown dimension {text!r}. Known here: {known}.")
    if len(values) > 1:
        raise ValueError(f"dimension {text!r} is not decided: it could be {messages.either(values)}")
    return values.pop()


def _scope_of_caller(asked: str) -> Scope:
    frame = sys._getframe(2)
    where = scope.current(frame.f_code)
    if where is None:
        raise NoActiveScopeError(
            f"{asked} was called in {frame.f_code.co_qualname}, which is not under @typechecked or `with typechecked()`"
        )
    return where
