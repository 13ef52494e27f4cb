"""Filling the arguments of a function from a context, as the keys of an object say."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kauldron_core.errors import unknown_name
from kauldron_core.kontext.keys import REQUIRED, get_keypaths
from kauldron_core.kontext.lookup import PathLookupError
from kauldron_core.kontext.path import Context, get_by_path


def resolve_from_keyed_obj(context: Context, obj: Any, *, func: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Returns the values that the keys of `obj` lead to in `context`, by the name of the key.

    Keys that are None are left out, so that the function they are for uses its default.

    Args:
      context: Any tree: a dict, a dataclass such as the training context.
      obj: An object with fields annotated `Key`, or with a method `__kontext_keys__()`.
      func: The function that the values are for; its signature is checked. Default: what `obj.__kontext_func__()`
        returns, if there is such a method.

    Raises:
      ValueError: When a required key is not set.
      TypeError: When `func` does not take one of the keys.
      PathLookupError: A KeyError, when nothing lies at a key's path.
    """
    name = type(obj).__name__
    keypaths = {key: path for key, path in get_keypaths(obj).items() if path is not None}
    if func is None and hasattr(type(obj), "__kontext_func__"):
        func = obj.__kontext_func__()
    if func is not None:
        _check_signature(keypaths, func, name)
    return resolve_from_keypaths(context, keypaths, at=name)


def resolve_from_keypaths(context: Context, keypaths: Mapping[str, Any], *, at: str = "") -> dict[str, Any]:
    """Returns `keypaths` with each path, also in dicts, lists and tuples, replaced by the value it leads to.

    Names whose path is None are left out.

    Args:
      context: The tree to read from.
      keypaths: Paths by name.
      at: What the names belong to, for messages.

    Raises:
      ValueError: When a required key is not set.
      PathLookupError: A KeyError that names every key with a path that leads nowhere.
    """
    _check_required(keypaths, at or "context")
    missed: list[str] = []
    prefix = f"{at}." if at else ""
    values = {
        key: _resolve(context, paths, f"{prefix}{key}", missed) for key, paths in keypaths.items() if paths is not None
    }
    if missed:
        raise PathLookupError("\n".join(missed))
    return values


def _resolve(context: Context, tree: Any, name: str, missed: list[str]) -> Any:
    if isinstance(tree, Mapping):
        return {step: _resolve(context, path, f"{name}[{step!r}]", missed) for step, path in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_resolve(context, path, f"{name}[{step}]", missed) for step, path in enumerate(tree))
    try:
        return get_by_path(context, tree)
    except PathLookupError as error:
        missed.append(f"{name}: {error}")
        return None


def _check_required(keypaths: Mapping[str, Any], name: str) -> None:
    unset = [key for key, tree in keypaths.items() if REQUIRED in _leaves(tree)]
    if unset:
        example = f"{name}({unset[0]}='batch.…')"
        raise ValueError(f"{name}: required keys are not set: {', '.join(unset)}. Give each a path, as in {example}.")


def _check_signature(keypaths: Mapping[str, Any], func: Callable[..., Any], name: str) -> None:
    parameters = inspect.signature(func).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for key in keypaths:
        if key not in parameters:
            function = getattr(func, "__qualname__", repr(func))
            raise TypeError(
                unknown_name("key", key, parameters, at=f"{name} (keys have to be arguments of {function})")
            )


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, Mapping):
        for child in tree.values():
            yield from _leaves(child)
    elif type(tree) in (list, tuple):
        for child in tree:
            yield from _leaves(child)
    else:
        yield tree
