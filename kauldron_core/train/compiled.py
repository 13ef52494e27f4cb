"""The one compiled step: a function of numbers, state and batch, kept in the process for all that share its structure.

A trial that differs from an earlier one in a learning rate or a seed runs the same program with other arguments.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax

from kauldron_core.errors import ConfigError
from kauldron_core.forward import Blueprint, TrainState, as_arguments
from kauldron_core.train import program as program_lib
from kauldron_core.train.program import Outputs, Program, StepReport

_ALL = Outputs(losses=True, metrics=True)
_MAX_STRUCTURES = 16  # Each keeps its executables in memory.


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """Where the program of a step comes from, so that it can be built again while it is traced.

    Attributes:
      blueprint: What the config says of the step.
      program_of: Makes the program of the objects that the blueprint describes.
    """

    blueprint: Blueprint
    program_of: Callable[[Mapping[str, Any]], Program]

    def program(self, numbers: Mapping[str, Any]) -> Program:
        """Returns the program with some numbers replaced, by tracers usually."""
        return self.program_of(self.blueprint.build(numbers))


class Structure:
    """The compiled functions of all steps that differ in numbers only.

    Args:
      build: Makes the program from the values of `arguments`.
      arguments: Paths of the numbers that are arguments.
    """

    def __init__(self, build: Callable[[Mapping[str, Any]], Program], arguments: Sequence[str] = ()):
        self.arguments = tuple(arguments)
        self._build = build
        self._steps: dict[Outputs, Callable[..., Any]] = {}
        self.init: Callable[..., TrainState] = jax.jit(self._init)

    def step(self, outputs: Outputs) -> Callable[..., tuple[TrainState, StepReport | None]]:
        """Returns the function of numbers, state (whose buffers it takes over) and batch that gives `outputs`."""
        if outputs not in self._steps:

            def step(numbers: Sequence[Any], state: TrainState, batch: Any) -> tuple[TrainState, StepReport | None]:
                return program_lib.update(self.program(numbers), state, batch, outputs)

            self._steps[outputs] = jax.jit(step, donate_argnums=1)
        return self._steps[outputs]

    def program(self, numbers: Sequence[Any]) -> Program:
        """Returns the program with these values of the arguments."""
        return self._build(dict(zip(self.arguments, numbers, strict=True)))

    def trace(self, numbers: Sequence[Any], batch: Any) -> None:
        """Traces what a training needs first; the calls that follow use it. Raises what tracing raises."""
        state = self.init.eval_shape(numbers, batch)  # pyright: ignore[reportFunctionMemberAccess]
        self.step(_ALL).eval_shape(numbers, state, batch)  # pyright: ignore[reportFunctionMemberAccess]

    def _init(self, numbers: Sequence[Any], batch: Any) -> TrainState:
        return program_lib.init_state(self.program(numbers), batch)


_structures: collections.OrderedDict[Hashable, Structure] = collections.OrderedDict()
_arguments: dict[Hashable, tuple[str, ...]] = {}


def structure_of(source: Source, batch: Any) -> tuple[Structure, tuple[jax.Array, ...]]:
    """Returns the compiled functions for a step, and the values of their arguments.

    Args:
      source: The step.
      batch: A batch, or its shapes.
    """
    blueprint, batch = source.blueprint, jax.eval_shape(lambda: batch) if _has_arrays(batch) else batch
    try:
        kind = blueprint.key(blueprint.numbers), _spec_key(batch)
    except ConfigError:  # It holds what has no name, a lambda perhaps: nothing can be known to be like it.
        return Structure(source.program), ()
    if kind not in _arguments:
        _arguments[kind] = _traceable(source, batch)
    arguments = _arguments[kind]
    values = as_arguments({path: blueprint.numbers[path] for path in arguments})
    return _kept(source, arguments), tuple(values[path] for path in arguments)


def clear() -> None:
    """Forgets all compiled steps."""
    _structures.clear()
    _arguments.clear()


def _kept(source: Source, arguments: Sequence[str]) -> Structure:
    key = source.blueprint.key(arguments)
    if key not in _structures:
        _structures[key] = Structure(source.program, arguments)
    _structures.move_to_end(key)
    while len(_structures) > _MAX_STRUCTURES:
        _structures.popitem(last=False)
    return _structures[key]


def _traceable(source: Source, batch: Any) -> tuple[str, ...]:
    """Returns the paths of the numbers with which the step can be traced; found by trying."""
    numbers = source.blueprint.numbers
    candidates = [path for path in numbers if _builds(source, path)]
    if candidates and not _traces(source, candidates, batch):
        # A mistake of the user's shows without any argument too; it is then raised from here.
        _kept(source, ()).trace((), batch)
        candidates = [path for path in candidates if _traces(source, [path], batch)]
        if not _traces(source, candidates, batch):
            return ()
    return tuple(candidates)


def _builds(source: Source, path: str) -> bool:
    """Returns whether the objects can be made with this number traced. Most that can't branch on it here."""

    def build(value: Any) -> None:
        source.program({path: value})

    try:
        jax.eval_shape(build, *as_arguments({path: source.blueprint.numbers[path]}).values())
    except Exception:  # Whatever it raises: the number stays a part of the structure.
        return False
    return True


def _traces(source: Source, paths: Sequence[str], batch: Any) -> bool:
    values = as_arguments({path: source.blueprint.numbers[path] for path in paths})
    try:
        _kept(source, paths).trace(tuple(values.values()), batch)
    except Exception:  # As above; a mistake that has nothing to do with tracing numbers is raised without them.
        _structures.pop(source.blueprint.key(paths), None)
        return False
    return True


def _has_arrays(batch: Any) -> bool:
    return not all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(batch))


def _spec_key(batch: Any) -> Hashable:
    leaves, structure = jax.tree.flatten(batch)
    return structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
