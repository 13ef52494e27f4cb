"""At which count an optimizer calls a schedule: its own, not the step, where updates are skipped or gathered."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

_COUNTS = ("count", "gradient_step", "step_count", "step")
_MAX_OBJECTS = 10_000


def count_of(schedule: Any, optimizer: Any, opt_state: Any) -> Any:
    """Returns the count in `opt_state` with which `optimizer` calls `schedule` next, None if it does not hold it.

    Optax keeps schedules in closures and counts in states. Both are nested alike, so they are walked together: a chain
    is a tuple of functions and a tuple of states, a partition a dictionary of both. Of several places the first counts.

    Args:
      schedule: A function of a count, the very object that the optimizer holds.
      optimizer: A transformation.
      opt_state: Its state; leaves may be traced.
    """
    return next(_counts(optimizer, opt_state, schedule), None)


def held_by(optimizer: Any, kind: type) -> list[Any]:
    """Returns the objects of a class that an optimizer holds, its schedules for example."""
    return [found for found in _reachable(optimizer) if isinstance(found, kind)]


def _counts(holder: Any, state: Any, schedule: Any) -> Iterator[Any]:
    """Yields the counts of the states in `state` that belong to what holds the schedule, innermost first."""
    if not _is_node(state) or not _holds(holder, schedule):
        return
    for part, inner in _pairs(holder, state, schedule):
        yield from _counts(part, inner, schedule)
    fields = state._asdict() if hasattr(state, "_fields") else {}  # pyright: ignore[reportAttributeAccessIssue]
    counts = [fields[name] for name in _COUNTS if name in fields and not np.shape(fields[name])]
    yield from counts[:1]


def _pairs(holder: Any, state: Any, schedule: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the parts of a transformation with their states; all of it with each where they can't be told apart."""
    inner = state if isinstance(state, Mapping) else dict(enumerate(state))
    parts = None if hasattr(state, "_fields") else next(_alike(holder, inner, schedule), None)
    yield from ((holder if parts is None else parts[key], value) for key, value in inner.items())


def _alike(holder: Any, state: Mapping[Any, Any], schedule: Any) -> Iterator[Mapping[Any, Any]]:
    """Yields the collections with keys like those of `state` that hold the schedule, the nearest first."""
    for found in _reachable(holder):
        if isinstance(found, Mapping) or type(found) in (tuple, list):
            parts = found if isinstance(found, Mapping) else dict(enumerate(found))
            if parts.keys() == state.keys() and _holds(found, schedule):
                yield parts


def _holds(holder: Any, schedule: Any) -> bool:
    return any(found is schedule for found in _reachable(holder))


def _reachable(root: Any) -> Iterator[Any]:
    """Yields what can be reached from `root` through closures, containers and attributes, nearest first."""
    seen, layer = {id(root)}, [root]
    while layer and len(seen) < _MAX_OBJECTS:
        yield from layer
        found = {id(inner): inner for outer in layer for inner in _inside(outer) if id(inner) not in seen}
        seen |= found.keys()
        layer = list(found.values())


def _inside(value: Any) -> list[Any]:
    if isinstance(value, types.FunctionType):
        return [*_cells(value), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, tuple) and hasattr(value, "update"):  # A transformation: the other half holds no schedule.
        return [value.update]  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, type | types.ModuleType | jax.Array | np.ndarray):
        return []
    wrapped = getattr(value, "__wrapped__", None)
    return [*getattr(value, "__dict__", {}).values(), *([] if wrapped is None else [wrapped])]


def _cells(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # It is not set yet.
            continue


def _is_node(state: Any) -> bool:
    return isinstance(state, Mapping | tuple | list)
