"""Which arguments a target takes. Known whenever its module is imported, so that a typo is refused as it is written."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any, Final

from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.konfig.calls.targets import display, find_loaded, split
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import fields, is_node, is_trusted
from kauldron_core.konfig.trusting import rules as trusting

PARTIAL: Final = "functools:partial"


class ArgumentError(ConfigError, TypeError):
    """Arguments that a target does not take, or that it lacks."""


@dataclass(frozen=True)
class Arguments:
    """What a target takes.

    Attributes:
      by_position: Names of the arguments that may be given by position, in their order.
      by_name: Names of those that may be given by name.
      required: Names of those without a default.
      takes_more_positions: Whether it has `*args`.
      takes_more_names: Whether it has `**kwargs`.
    """

    by_position: tuple[str, ...]
    by_name: frozenset[str]
    required: tuple[str, ...]
    takes_more_positions: bool
    takes_more_names: bool


def arguments_of(target: Any) -> Arguments | None:
    """Returns the arguments of a callable, or None when they cannot be found out."""
    try:
        return _cached(target)
    except TypeError:  # An unhashable target.
        return _inspect(target)


@functools.lru_cache(maxsize=4096)
def _cached(target: Any) -> Arguments | None:
    return _inspect(target)


def _inspect(target: Any) -> Arguments | None:
    try:
        parameters = list(_signature(target).parameters.values())
    except (TypeError, ValueError):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    kinds = {parameter.kind for parameter in parameters}
    return Arguments(
        by_position=tuple(parameter.name for parameter in parameters if parameter.kind in positional),
        by_name=frozenset(parameter.name for parameter in parameters if parameter.kind in named),
        required=tuple(
            parameter.name
            for parameter in parameters
            if parameter.kind in (*positional, *named) and parameter.default is parameter.empty
        ),
        takes_more_positions=inspect.Parameter.VAR_POSITIONAL in kinds,
        takes_more_names=inspect.Parameter.VAR_KEYWORD in kinds,
    )


def _signature(target: Any) -> inspect.Signature:
    signature = inspect.signature(target)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    takes_anything = kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]
    if isinstance(target, type) and takes_anything and type(target) is not type:
        # A metaclass with a `__call__` of its own (flax.nnx) hides the arguments that `__init__` takes.
        bound = inspect.signature(target.__init__)
        return bound.replace(parameters=list(bound.parameters.values())[1:])
    return signature


def check_argument(node: Any, key: Any) -> None:
    """Refuses an argument that the target of a call does not take.

    Args:
      node: The call.
      key: Name of the argument, or its position as text.

    Raises:
      ArgumentError: With the closest name that it takes.
    """
    arguments = _arguments_of_node(node)
    if arguments is not None:
        _check_known(node, key, arguments, at=_name(node))


def check_call(node: Any, *, at: str) -> None:
    """Refuses a call with arguments that its target does not take, as far as its module is imported."""
    arguments = _arguments_of_node(node)
    if arguments is not None:
        for key in fields(node):
            if key != QUALNAME:
                _check_known(node, key, arguments, at=_at(node, at))


def check_complete(node: Any, target: Any, *, at: str) -> None:
    """Refuses a call that its target cannot take: an unknown argument, one that is missing or given twice."""
    at = _at(node, at)
    count = _check_positions(node, at)
    is_partial = fields(node)[QUALNAME] == PARTIAL
    arguments = _arguments_of_partial(node) if is_partial else arguments_of(target)
    if arguments is None:
        return
    for key in fields(node):
        if key != QUALNAME:
            _check_known(node, key, arguments, at=at)
    if is_partial:
        return
    given = {*arguments.by_position[:count], *fields(node)}
    missing = [name for name in arguments.required if name not in given]
    if missing:
        names = ", ".join(repr(name) for name in missing)
        raise ArgumentError(f"{at}: the argument {names} is needed and not given")


def _check_positions(node: Any, at: str) -> int:
    """Returns how many arguments are given by position."""
    numbers = sorted(int(key) for key in fields(node) if isinstance(key, str) and key.isdigit())
    if numbers != list(range(len(numbers))):
        missing = next(number for number in range(len(numbers)) if number not in numbers)
        raise ArgumentError(f"{at}: the positional argument {missing} is missing before number {numbers[-1]}")
    return len(numbers)


def _check_known(node: Any, key: Any, arguments: Arguments, *, at: str) -> None:
    if not isinstance(key, str):
        raise ArgumentError(f"{at}: {key!r} is not the name of an argument")
    if key.isdigit():
        position = int(key)
        if position >= len(arguments.by_position):
            if not arguments.takes_more_positions:
                count = len(arguments.by_position)
                raise ArgumentError(f"{at}: takes {count} arguments by position; there is no number {position}")
        elif arguments.by_position[position] in fields(node):
            raise ArgumentError(f"{at}: {arguments.by_position[position]!r} is given by name and by position")
    elif key in arguments.by_name:
        is_twice = key in arguments.by_position and str(arguments.by_position.index(key)) in fields(node)
        if is_twice:
            position = arguments.by_position.index(key)
            raise ArgumentError(f"{at}: {key!r} is given by position already; set [{position}] instead")
    elif not arguments.takes_more_names:
        raise ArgumentError(unknown_name("argument", key, sorted(arguments.by_name), at=at))


def _arguments_of_node(node: Any) -> Arguments | None:
    name = fields(node)[QUALNAME]
    if not isinstance(name, str):
        return None
    if name == PARTIAL:
        return _arguments_of_partial(node)
    target = _loaded(node, name)
    return None if target is None else arguments_of(target)


def _arguments_of_partial(node: Any) -> Arguments | None:
    """Returns what `functools.partial` takes after the function, known when the function is a constant."""
    function: Any = fields(node).get("0")
    if not is_node(function) or CONST not in fields(function):
        return None
    target = _loaded(function, fields(function)[CONST])
    arguments = None if target is None else arguments_of(target)
    if arguments is None:
        return None
    # Arguments that a partial sets by position may be set by name in its call, so nothing is given twice.
    return Arguments(
        ("function", *arguments.by_position),
        arguments.by_name,
        (),
        arguments.takes_more_positions,
        arguments.takes_more_names,
    )


def _loaded(node: Any, name: str) -> Any:
    """Returns the target of a call if it is imported; a name that a file holds is looked at only if it is trusted."""
    if not is_trusted(node):
        try:
            trusting.check_name(*split(name))
        except trusting.UntrustedError:
            return None
    return find_loaded(name)


def _name(node: Any) -> str:
    return display(fields(node)[QUALNAME])


def _at(node: Any, at: str) -> str:
    return _name(node) if at in ("", "cfg") else f"{at}: {_name(node)}"
