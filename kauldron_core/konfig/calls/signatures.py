"""The arguments that a target takes: their names, annotations and defaults."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kauldron_core.konfig.calls.cache import cached
from kauldron_core.konfig.calls.hints import UNKNOWN

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Parameter:
    """One argument that a target takes.

    Attributes:
      name: Name of the argument.
      annotation: Its annotation, or `UNKNOWN`.
      default: Its default, or `UNKNOWN` when it has to be given.
    """

    name: str
    annotation: Any = UNKNOWN
    default: Any = UNKNOWN

    @property
    def is_required(self) -> bool:
        """Whether a call has to give it."""
        return self.default is UNKNOWN


@dataclass(frozen=True)
class Signature:
    """What a target takes.

    Attributes:
      by_position: Names of the arguments that may be given by position, in their order.
      by_name: Names of those that may be given by name.
      required: Names of those without a default.
      takes_more_positions: Whether it has `*args`.
      takes_more_names: Whether it has `**kwargs`.
      target: The target; None for one that nothing is known about.
    """

    by_position: tuple[str, ...] = ()
    by_name: frozenset[str] = frozenset()
    required: tuple[str, ...] = ()
    takes_more_positions: bool = True
    takes_more_names: bool = True
    target: Any = None

    @functools.cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        """Every argument with a name. Evaluates annotations, which takes longer than the names alone."""
        if self.target is None:
            return {}
        found, hints = _signature(self.target).parameters, _hints(self.target)
        return {
            name: Parameter(name, hints.get(name, _evaluated(self.target, parameter.annotation)), parameter.default)
            for name, parameter in found.items()
            if name in self.by_name or name in self.by_position
        }

    def at(self, key: Any) -> Parameter:
        """Returns the argument that a config keeps under `key` (a name, or a position as text)."""
        if isinstance(key, str) and key.isdigit() and int(key) < len(self.by_position):
            key = self.by_position[int(key)]
        return self.parameters.get(key, Parameter(str(key)))

    def position_of(self, name: Any) -> str | None:
        """Returns the key under which a config keeps the argument `name` when it is given by position."""
        return str(self.by_position.index(name)) if name in self.by_position else None


ANYTHING: Final = Signature()
"""What a target takes that nothing is known about."""


@cached
def signature_of(target: Any) -> Signature | None:
    """Returns the arguments of a callable, or None when they cannot be found out."""
    try:
        parameters = list(_signature(target).parameters.values())
    except (TypeError, ValueError):
        return None
    kinds = {parameter.kind for parameter in parameters}
    return Signature(
        by_position=tuple(parameter.name for parameter in parameters if parameter.kind in _POSITIONAL),
        by_name=frozenset(parameter.name for parameter in parameters if parameter.kind in _NAMED),
        required=tuple(
            parameter.name
            for parameter in parameters
            if parameter.kind in (*_POSITIONAL, *_NAMED) and parameter.default is parameter.empty
        ),
        takes_more_positions=inspect.Parameter.VAR_POSITIONAL in kinds,
        takes_more_names=inspect.Parameter.VAR_KEYWORD in kinds,
        target=target,
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


def _hints(target: Any) -> dict[str, Any]:
    """Returns the evaluated annotations; none of them when one cannot be evaluated."""
    if not isinstance(target, type):
        return _evaluated_hints(target)
    # A generated `__init__` has the annotations of the fields, one that was written has its own.
    return {**_evaluated_hints(target), **_evaluated_hints(target.__init__)}


def _evaluated_hints(target: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # Annotations are other people's code; one that fails only costs the check.
        return {}


def _evaluated(target: Any, annotation: Any) -> Any:
    """Returns one annotation, evaluated alone where it is text."""
    if not isinstance(annotation, str):
        return annotation
    module = sys.modules.get(getattr(target, "__module__", ""))
    holder = type("Holder", (), {"__annotations__": {"it": annotation}})
    try:
        return typing.get_type_hints(holder, vars(module) if module else {}, include_extras=True)["it"]
    except Exception:  # The same as above.
        return UNKNOWN
