"""What a call target takes: its parameters with annotations, defaults and documentation, if its module is loaded."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kauldron_core.konfig.annotations import UNKNOWN


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


def loaded(qualname: str) -> Any:
    """Returns the object that `module:a.b` names, or None when its module is not imported: nothing is imported here."""
    module_name, _, attributes = qualname.partition(":")
    if not attributes:
        module_name, _, attributes = qualname.rpartition(".")
    found: Any = sys.modules.get(module_name)
    for attribute in attributes.split("."):
        found = getattr(found, attribute, None)
        if found is None:
            return None
    return found


def parameters(qualname: str) -> Mapping[str, Parameter] | None:
    """Returns the named parameters of the target, or None when they are not known."""
    target = loaded(qualname)
    return parameters_of(target) if callable(target) else None


def parameters_of(target: Any) -> Mapping[str, Parameter] | None:
    """Returns the named parameters of a callable, or None when it has no signature."""
    try:
        return _parameters(target)
    except TypeError:  # An unhashable target.
        return _parameters.__wrapped__(target)


@functools.lru_cache(maxsize=1024)
def _parameters(target: Any) -> Mapping[str, Parameter] | None:
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return None
    hints = _hints(target)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        name: Parameter(name, hints.get(name, _evaluated(target, parameter.annotation)), parameter.default)
        for name, parameter in signature.parameters.items()
        if parameter.kind in kinds
    }


def _hints(target: Any) -> dict[str, Any]:
    """Returns the evaluated annotations; none of them when one cannot be evaluated."""
    try:
        if isinstance(target, type):
            own: Any = target.__init__
            return {**typing.get_type_hints(target, include_extras=True), **_init_hints(own)}
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # Annotations are other people's code; one that fails only costs the check.
        return {}


def _init_hints(init: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(init, include_extras=True)
    except Exception:  # The same: a generated `__init__` may name types of other modules.
        return {}


def _evaluated(target: Any, annotation: Any) -> Any:
    """Returns one annotation, evaluated alone where it is text."""
    if not isinstance(annotation, str):
        return annotation
    module = sys.modules.get(getattr(target, "__module__", ""))
    try:
        return typing.get_type_hints(_holder(annotation), vars(module) if module else {})["it"]
    except Exception:  # The same as above.
        return UNKNOWN


def _holder(annotation: str) -> type:
    return type("_Holder", (), {"__annotations__": {"it": annotation}})
