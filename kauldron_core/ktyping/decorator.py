"""`typechecked`: checks a function's arguments and result, a dataclass's fields, or a block."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import typing
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from kauldron_core.ktyping import checkers, config, messages, scope
from kauldron_core.ktyping.checkers import Checker, checker_for
from kauldron_core.ktyping.errors import KTypeCheckError
from kauldron_core.ktyping.scope import ShapeScope

_F = typing.TypeVar("_F")


@typing.overload
def typechecked(fn: _F) -> _F: ...
@typing.overload
def typechecked(*, new_scope: bool = True) -> _Block: ...


def typechecked(fn: Any = None, *, new_scope: bool = True) -> Any:
    """Returns `fn` with its annotations checked at every call, or a context manager when called without one.

    Works on functions, methods, class and static methods, properties, generators and dataclasses. Names of
    dimensions hold within one call and never leak into another. Under `jax.jit` the check happens while tracing.

    Args:
      fn: What to check. A generator's yielded values are checked too, each on its own.
      new_scope: For `with typechecked():` whether the block starts afresh or goes on with the sizes around it.

    Raises:
      KTypeCheckError: At a call, if a value does not fit.
      TypeError: If `fn` is something else.
    """
    if fn is None:
        return _Block(new_scope)
    if isinstance(fn, classmethod | staticmethod):
        return type(fn)(typechecked(fn.__func__))
    if isinstance(fn, property):
        checked = [accessor and _checked_function(accessor) for accessor in (fn.fget, fn.fset, fn.fdel)]
        return property(checked[0], checked[1], checked[2], doc=fn.__doc__)
    if isinstance(fn, functools.cached_property):
        return functools.cached_property(typechecked(fn.func))
    if inspect.isclass(fn):
        return _checked_dataclass(fn)
    if inspect.isfunction(fn):
        return _checked_function(fn)
    raise TypeError(f"typechecked: {fn!r} is neither a function, a method, a property nor a dataclass")


def check(where: ShapeScope, label: str, hint: Any, checker: Checker, value: Any) -> None:
    """Narrows the scope `where` to what lets `value` fit.

    Raises:
      KTypeCheckError: If nothing does.
    """
    possible = (found for start in where.assignments for found in checker.extend(value, start, label))
    if not where.narrow(possible):
        raise messages.failure(where, label, hint, value, checker.explain(value, where.assignments[0]))
    where.seen.append((label, hint, value))


class _Signature:
    """A function's annotations, read at its first call: by then the names in them exist."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.title = f"{function.__module__}.{function.__qualname__}"
        parameters = inspect.signature(function).parameters.values()
        self.positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.keywords = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        self.rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        self.extra = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}

    @functools.cached_property
    def checkers(self) -> dict[str, tuple[Any, Checker]]:
        hints = _hints(self.function)
        _report_jaxtyping(self.function, hints)
        return {name: (hint, checker_for(hint)) for name, hint in hints.items() if hint is not Any}

    @functools.cached_property
    def needs_arguments(self) -> bool:
        return any("{" in str(hint) for hint, _ in self.checkers.values())

    def open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ShapeScope:
        """Returns the scope of one call with its arguments checked."""
        arguments: dict[str, Any] | None = None
        if self.needs_arguments:
            arguments = {**self.defaults, **dict(zip(self.positional, args, strict=False)), **kwargs}
        where = ShapeScope(self.title, self.function.__code__, arguments)
        for name, label, value in self._passed(args, kwargs):
            if name in self.checkers:
                check(where, label, *self.checkers[name], value)
        _refuse_pending(where)
        return where

    def _passed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
        for name, value in zip(self.positional, args, strict=False):
            yield name, name, value
        if self.rest is not None:
            for index, value in enumerate(args[len(self.positional) :]):
                yield self.rest, f"*{self.rest}[{index}]", value
        for name, value in kwargs.items():
            yield (name if name in self.keywords else self.extra or name), name, value

    def close(self, where: ShapeScope, result: Any) -> None:
        """Checks the result of the call."""
        if "return" in self.checkers:
            check(where, "the return value", *self.checkers["return"], result)
            _refuse_pending(where)


def _refuse_pending(where: ShapeScope) -> None:
    """Refuses sizes that are computed from names which nothing has bound."""
    if all(bindings.pending for bindings in where.assignments):
        dim, _, label = where.assignments[0].pending[0]
        raise KTypeCheckError(
            f"{label}: dimension {dim} is computed from a name that no argument binds\nFunction: {where.title}", where
        )


def _checked_function(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = _Signature(function)

    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generating(*args: Any, **kwargs: Any) -> Any:
            if not config.config_of(function.__module__).typechecking_enabled:
                return function(*args, **kwargs)
            return _drive(function(*args, **kwargs), signature.open(args, kwargs), signature)

        return generating

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not config.config_of(function.__module__).typechecking_enabled:
            return function(*args, **kwargs)
        where = signature.open(args, kwargs)
        with scope.active(where):
            result = function(*args, **kwargs)
        signature.close(where, result)
        return result

    return checked


def _drive(generator: Generator[Any, Any, Any], where: ShapeScope, signature: _Signature) -> Generator[Any, Any, Any]:
    """Passes everything through to `generator` and checks what it yields, each value on its own."""
    hints = typing.get_args(signature.checkers.get("return", (None, None))[0])
    resume: Callable[[], Any] = functools.partial(next, generator)
    while True:
        try:
            with scope.active(where):
                item = resume()
        except StopIteration as stop:
            if len(hints) == 3:
                check(where, "the return value", hints[2], checker_for(hints[2]), stop.value)
            return stop.value
        if hints:
            check(where.copy(), "a yielded value", hints[0], checker_for(hints[0]), item)
        try:
            resume = functools.partial(generator.send, (yield item))
        except GeneratorExit:
            generator.close()
            raise
        except BaseException as error:
            resume = functools.partial(generator.throw, error)


def _checked_dataclass(cls: type) -> type:
    """Wraps `__init__`, and lets checked functions look at instances they are given."""
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"typechecked: {cls.__qualname__} is not a dataclass; put @typechecked above @dataclass")
    init = cls.__init__
    title = f"{cls.__module__}.{cls.__qualname__}"

    @functools.cache
    def field_checkers() -> Mapping[str, tuple[Any, Checker]]:
        hints = _hints(cls)
        return {field.name: (hints[field.name], checker_for(hints[field.name])) for field in dataclasses.fields(cls)}

    def check_fields(instance: Any) -> None:
        where = ShapeScope(title, None)
        for name, (hint, checker) in field_checkers().items():
            check(where, name, hint, checker, getattr(instance, name))
        _refuse_pending(where)

    def problem(instance: Any) -> str | None:
        try:
            check_fields(instance)
        except KTypeCheckError as error:
            return str(error).partition("\n")[0]
        return None

    @functools.wraps(init)
    def checked_init(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if type(self) is cls and config.config_of(cls.__module__).typechecking_enabled:
            check_fields(self)

    cls.__init__ = checked_init  # type: ignore[method-assign]
    checkers.CHECKED_CLASSES[cls] = problem
    return cls


def _hints(target: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        error.add_note(f"while reading the annotations of {target.__qualname__}")
        raise


def _report_jaxtyping(function: Callable[..., Any], hints: Mapping[str, Any]) -> None:
    """Warns of annotations of jaxtyping, or refuses them, as the module's config says."""
    policy = config.config_of(function.__module__).jaxtyping_annotations
    found = [name for name, hint in hints.items() if _is_of_jaxtyping(hint)]
    if policy == "ignore" or not found:
        return
    text = f"{function.__qualname__}: {', '.join(found)}: annotated by jaxtyping, whose dimensions are not compared"
    if policy == "error":
        raise TypeError(text)
    warnings.warn(text, stacklevel=4)


def _is_of_jaxtyping(hint: Any) -> bool:
    own = type(hint).__module__.partition(".")[0] == "jaxtyping"
    return own or any(map(_is_of_jaxtyping, typing.get_args(hint)))


class _Block:
    """`with typechecked():`, the scope of a block."""

    def __init__(self, new_scope: bool):
        self._new_scope = new_scope

    def __enter__(self) -> None:
        frame = sys._getframe(1)
        around = scope.innermost()
        if not self._new_scope and around is None:
            raise RuntimeError("typechecked(new_scope=False): there is no checked function or block around this one")
        self._around = None if self._new_scope else around
        where = ShapeScope(frame.f_code.co_qualname, frame.f_code)
        if self._around is not None:
            where.assignments, where.seen = self._around.assignments, self._around.seen
        self._active = scope.active(where)
        self._where = self._active.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._around is not None:
            self._around.assignments = self._where.assignments
        self._active.__exit__(*error)
