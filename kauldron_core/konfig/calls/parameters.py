"""What a call target takes: its arguments with annotations and defaults, known if its module is imported."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kauldron_core.konfig.calls import signatures
from kauldron_core.konfig.calls.hints import UNKNOWN
from kauldron_core.konfig.calls.targets import find_loaded, split
from kauldron_core.konfig.tree.config_dict import ConfigDict
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import fields, is_trusted
from kauldron_core.konfig.trusting import rules as trusting


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
class Parameters:
    """The arguments of a target.

    Attributes:
      by_name: Every argument with a name.
      by_position: Names of those that may be given by position, in order.
      takes_any: Whether it takes `**kwargs`, or nothing is known about it.
    """

    by_name: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    by_position: tuple[str, ...] = ()
    takes_any: bool = True

    def at(self, key: Any) -> Parameter:
        """Returns the argument that a config keeps under `key` (a name, or a position as text)."""
        if isinstance(key, str) and key.isdigit() and int(key) < len(self.by_position):
            key = self.by_position[int(key)]
        return self.by_name.get(key, Parameter(str(key)))

    def position_of(self, name: Any) -> str | None:
        """Returns the key under which a config keeps the argument `name` when it is given by position."""
        return str(self.by_position.index(name)) if name in self.by_position else None


def parameters_of_node(node: ConfigDict) -> Parameters:
    """Returns what the target of a call takes; nothing is imported to find it out."""
    own = fields(node)
    if own.get(QUALNAME) != signatures.PARTIAL:
        return _of_name(node, own.get(QUALNAME))
    function = own.get("0")
    if not isinstance(function, ConfigDict):
        return Parameters()
    inner = _of_name(function, fields(function).get(CONST))
    return Parameters(inner.by_name, ("func", *inner.by_position), inner.takes_any)


def parameters_of(target: Any) -> Parameters:
    """Returns what a callable takes."""
    try:
        return _cached(target)
    except TypeError:  # An unhashable target.
        return _inspected(target)


def _of_name(node: Any, name: Any) -> Parameters:
    if not isinstance(name, str):
        return Parameters()
    if not is_trusted(node):
        try:
            # Looking a name up can run code of a module, so one that a file holds has to be trusted first.
            trusting.check_name(*split(name))
        except trusting.UntrustedError:
            return Parameters()
    target = find_loaded(name)
    return parameters_of(target) if callable(target) else Parameters()


@functools.lru_cache(maxsize=4096)
def _cached(target: Any) -> Parameters:
    return _inspected(target)


def _inspected(target: Any) -> Parameters:
    arguments = signatures.arguments_of(target)
    if arguments is None:
        return Parameters()
    try:
        found = inspect.signature(target).parameters
        if not arguments.by_name <= found.keys():
            found = inspect.signature(target.__init__).parameters
    except (TypeError, ValueError):
        return Parameters()
    hints = _hints(target)
    names = [name for name in found if name in arguments.by_name or name in arguments.by_position]
    by_name = {
        name: Parameter(name, hints.get(name, _evaluated(target, found[name].annotation)), found[name].default)
        for name in names
    }
    return Parameters(by_name, arguments.by_position, arguments.takes_more_names)


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
