"""The one compiled step: a function of numbers, state and batch, kept in the process for all that share its structure.

A trial that differs from an earlier one in a learning rate or a seed runs the same program with other arguments.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax

from kauldron_core.errors import ConfigError
from kauldron_core.forward import Blueprint, TrainState, as_arguments
from kauldron_core.sharding import ShardingStrategy
from kauldron_core.train.step import checks
from kauldron_core.train.step import program as program_lib
from kauldron_core.train.step.layout import Layout
from kauldron_core.train.step.program import Outputs, Program, StepReport

_LOGGED = Outputs(losses=True, metrics=True)
_MAX_KEPT = 16  # Each keeps its executables in memory.


@dataclasses.dataclass(frozen=True)
class CompileOptions:
    """How a step is compiled, apart from what it computes.

    Attributes:
      sharding: What is split over the devices.
      checkify_errors: Categories of run-time checks.
    """

    sharding: ShardingStrategy | None = None
    checkify_errors: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class StepSource:
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


class CompiledStep:
    """The compiled functions of all steps that differ in numbers only.

    Args:
      build: Makes the program from the values of `arguments`.
      arguments: Paths of the numbers that are arguments.
      compilation: How they are compiled.
      batch: Shapes of the global batch.
    """

    def __init__(
        self,
        build: Callable[[Mapping[str, Any]], Program],
        arguments: Sequence[str] = (),
        *,
        compilation: CompileOptions,
        batch: Any,
    ):
        self.arguments = tuple(arguments)
        self._build = build
        self._compilation = compilation
        self._batch = batch
        self._steps: dict[tuple[Outputs, bool], Callable[..., Any]] = {}

    def step(self, outputs: Outputs) -> Callable[..., tuple[TrainState, StepReport | None]]:
        """Returns the function of numbers, state (whose buffers it takes over) and batch that gives `outputs`."""
        return self._kept(self._update(outputs), outputs, is_call=False)

    def call(self, outputs: Outputs) -> Callable[..., tuple[TrainState, StepReport | None]]:
        """Returns the function of numbers, state, a stack of batches and their number; `outputs` are the last one's."""
        return self._kept(program_lib.several(self._update, outputs), outputs, is_call=True)

    def _update(self, outputs: Outputs) -> Callable[..., tuple[TrainState, StepReport | None]]:
        def step(numbers: Sequence[Any], state: TrainState, batch: Any) -> tuple[TrainState, StepReport | None]:
            return program_lib.update(self.program(numbers), state, batch, outputs)

        return step

    @functools.cached_property
    def init(self) -> Callable[..., TrainState]:
        """The function of numbers and a batch that gives the state before the first step."""
        return jax.jit(self._init, out_shardings=None if self.layout is None else self.layout.state)

    @functools.cached_property
    def init_optimizer(self) -> Callable[..., Any]:
        """The function of numbers and parameters that gives the state of the optimizer before the first step."""

        def init(numbers: Sequence[Any], params: Any) -> Any:
            return self.program(numbers).optimizer.init(params)

        return jax.jit(init, out_shardings=None if self.layout is None else self.layout.state.opt_state)

    def init_spec(self, numbers: Sequence[Any]) -> TrainState:
        """Returns the shapes of the state, with their shardings where there are several devices."""
        spec = jax.eval_shape(self.init, numbers, self._batch)
        return spec if self.layout is None else self.layout.template(spec)

    @functools.cached_property
    def layout(self) -> Layout | None:
        """Where everything is; None where there is one device."""
        strategy = self._compilation.sharding
        if strategy is None or strategy.is_trivial:
            return None
        # Numbers make no difference to shapes.
        program = self._build({})
        with strategy.set_global_mesh():
            state = jax.eval_shape(lambda batch: program_lib.init_state(program, batch), self._batch)
            variables = jax.eval_shape(program.forward(Outputs()).init_variables, self._batch)
        return Layout(strategy, state=state, variables=variables, batch=self._batch)

    def program(self, numbers: Sequence[Any]) -> Program:
        """Returns the program with these values of the arguments."""
        return self._build(dict(zip(self.arguments, numbers, strict=True)))

    def trace(self, numbers: Sequence[Any]) -> None:
        """Traces what a training needs first; the calls that follow use it. Raises what tracing raises."""
        state = jax.eval_shape(self.init, numbers, self._batch)
        jax.eval_shape(self.step(_LOGGED), numbers, state, self._batch)

    def _init(self, numbers: Sequence[Any], batch: Any) -> TrainState:
        with self._mesh():
            return program_lib.init_state(self.program(numbers), batch)

    def _kept(self, step: Callable[..., Any], outputs: Outputs, *, is_call: bool) -> Callable[..., Any]:
        key = outputs, is_call
        if key not in self._steps:
            self._steps[key] = self._compiled(step)
        return self._steps[key]

    def _compiled(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def in_mesh(*args: Any) -> Any:
            with self._mesh():
                return step(*args)

        errors = self._compilation.checkify_errors
        if errors:
            return checks.checked(in_mesh, errors)
        shardings = None if self.layout is None else (self.layout.state, self.layout.replicated)
        return jax.jit(in_mesh, donate_argnums=1, out_shardings=shardings)

    def _mesh(self) -> contextlib.AbstractContextManager[Any]:
        strategy = self._compilation.sharding
        return contextlib.nullcontext() if self.layout is None or strategy is None else strategy.set_global_mesh()


_kept_steps: collections.OrderedDict[Hashable, CompiledStep] = collections.OrderedDict()
_arguments: dict[Hashable, tuple[str, ...]] = {}


def compiled_step(
    source: StepSource, compilation: CompileOptions, batch: Any
) -> tuple[CompiledStep, tuple[jax.Array, ...]]:
    """Returns the compiled functions for a step, and the values of their arguments.

    Args:
      source: The step.
      compilation: How it is compiled.
      batch: Shapes of the global batch.
    """
    cache = _StepCache(source, compilation, batch)
    try:
        arguments = cache.arguments()
    except ConfigError:  # It holds what has no name, a lambda perhaps: nothing can be known to be like it.
        return CompiledStep(source.program, compilation=compilation, batch=batch), ()
    return cache.step(arguments), cache.values(arguments)


def clear() -> None:
    """Forgets all compiled steps."""
    _kept_steps.clear()
    _arguments.clear()


@dataclasses.dataclass(frozen=True)
class _StepCache:
    """Where the compiled functions of a step are kept."""

    source: StepSource
    compilation: CompileOptions
    batch: Any

    def arguments(self) -> tuple[str, ...]:
        """Returns the paths of the numbers that are arguments.

        Raises:
          ConfigError: If the config can't be compared with others.
        """
        key = self._key(self.source.blueprint.numbers)
        if key not in _arguments:
            _arguments[key] = self._find_arguments()
        return _arguments[key]

    def values(self, paths: Sequence[str]) -> tuple[jax.Array, ...]:
        numbers = self.source.blueprint.numbers
        return tuple(as_arguments({path: numbers[path] for path in paths}).values())

    def step(self, paths: Sequence[str]) -> CompiledStep:
        key = self._key(paths)
        if key not in _kept_steps:
            _kept_steps[key] = CompiledStep(self.source.program, paths, compilation=self.compilation, batch=self.batch)
        _kept_steps.move_to_end(key)
        while len(_kept_steps) > _MAX_KEPT:
            _kept_steps.popitem(last=False)
        return _kept_steps[key]

    def _key(self, paths: Iterable[str]) -> Hashable:
        leaves, tree = jax.tree.flatten(self.batch)
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        return self.source.blueprint.key(paths), self.compilation, tree, shapes

    def _find_arguments(self) -> tuple[str, ...]:
        """Returns the numbers with which the step can be traced; found by trying."""
        candidates = [path for path in self.source.blueprint.numbers if self._builds_with(path)]
        if candidates and not self._traces_with(candidates):
            # A mistake of the user's shows without any argument too; it is then raised from here.
            self.step(()).trace(())
            candidates = [path for path in candidates if self._traces_with([path])]
            if not self._traces_with(candidates):
                return ()
        return tuple(candidates)

    def _builds_with(self, path: str) -> bool:
        """Returns whether the objects can be made with this number traced. Most that can't branch on it here."""

        def build(value: Any) -> None:
            self.source.program({path: value})

        try:
            jax.eval_shape(build, *self.values([path]))
        except Exception:  # Whatever it raises: the number stays a part of the structure.
            return False
        return True

    def _traces_with(self, paths: Sequence[str]) -> bool:
        try:
            self.step(paths).trace(self.values(paths))
        except Exception:  # As above; a mistake that has nothing to do with numbers is raised without them.
            _kept_steps.pop(self._key(paths), None)
            return False
        return True
