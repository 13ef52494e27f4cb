"""The arguments of a call in a config, checked as they are written where the module of the target is imported."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.konfig.calls.signatures import Signature, signature_of
from kauldron_core.konfig.calls.targets import display, find_loaded, split
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import fields, is_node, is_trusted
from kauldron_core.konfig.trusting import rules as trusting

PARTIAL: Final = "functools:partial"


class ArgumentError(ConfigError, TypeError):
    """Arguments that a target does not take, or that it lacks."""


def signature_of_node(node: Any) -> Signature | None:
    """Returns what the target of a call takes, None where it is not known; nothing is imported to find it out."""
    own = fields(node)
    if own.get(QUALNAME) != PARTIAL:
        return _signature_of_name(node, own.get(QUALNAME))
    function: Any = own.get("0")
    inner = _signature_of_name(function, fields(function).get(CONST)) if is_node(function) else None
    if inner is None:
        return None
    # Arguments that a partial sets by position may be set by name in its call, so nothing is given twice.
    return dataclasses.replace(inner, by_position=("func", *inner.by_position), required=())


def loaded_target(node: Any, name: Any) -> Any:
    """Returns what a node names if it is imported; a name that a file holds is looked at only if it is trusted."""
    if not isinstance(name, str):
        return None
    if not is_trusted(node):
        try:
            # Looking a name up can run code of a module.
            trusting.check_name(*split(name))
        except trusting.UntrustedError:
            return None
    return find_loaded(name)


def _signature_of_name(node: Any, name: Any) -> Signature | None:
    target = loaded_target(node, name)
    return None if target is None else signature_of(target)


def check_argument(node: Any, key: Any) -> None:
    """Refuses an argument that the target of a call does not take.

    Args:
      node: The call.
      key: Name of the argument, or its position as text.

    Raises:
      ArgumentError: With the closest name that it takes.
    """
    signature = signature_of_node(node)
    if signature is not None:
        _check_known(node, key, signature, at=_name(node))


def check_call(node: Any, *, at: str) -> None:
    """Refuses a call with arguments that its target does not take, as far as its module is imported."""
    signature = signature_of_node(node)
    if signature is not None:
        for key in fields(node):
            if key != QUALNAME:
                _check_known(node, key, signature, at=_at(node, at))


def check_complete(node: Any, target: Any, *, at: str) -> None:
    """Refuses a call that its target cannot take: an unknown argument, one that is missing or given twice."""
    at = _at(node, at)
    count = _check_positions(node, at)
    is_partial = fields(node)[QUALNAME] == PARTIAL
    signature = signature_of_node(node) if is_partial else signature_of(target)
    if signature is None:
        return
    for key in fields(node):
        if key != QUALNAME:
            _check_known(node, key, signature, at=at)
    if is_partial:
        return
    given = {*signature.by_position[:count], *fields(node)}
    missing = [name for name in signature.required if name not in given]
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


def _check_known(node: Any, key: Any, signature: Signature, *, at: str) -> None:
    if not isinstance(key, str):
        raise ArgumentError(f"{at}: {key!r} is not the name of an argument")
    if key.isdigit():
        position = int(key)
        if position >= len(signature.by_position):
            if not signature.takes_more_positions:
                count = len(signature.by_position)
                raise ArgumentError(f"{at}: takes {count} arguments by position; there is no number {position}")
        elif signature.by_position[position] in fields(node):
            raise ArgumentError(f"{at}: {signature.by_position[position]!r} is given by name and by position")
    elif key in signature.by_name:
        is_twice = key in signature.by_position and str(signature.by_position.index(key)) in fields(node)
        if is_twice:
            position = signature.by_position.index(key)
            raise ArgumentError(f"{at}: {key!r} is given by position already; set [{position}] instead")
    elif not signature.takes_more_names:
        raise ArgumentError(unknown_name("argument", key, sorted(signature.by_name), at=at))


def _name(node: Any) -> str:
    return display(fields(node)[QUALNAME])


def _at(node: Any, at: str) -> str:
    return _name(node) if at in ("", "cfg") else f"{at}: {_name(node)}"
