"""Which numbers of an experiment can be arguments of its step, found by tracing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core import konfig, paths
from kauldron_core.forward import as_arguments
from kauldron_core.packs.planning.tables import Tabulated, is_schedule, tabulate
from kauldron_core.train.step.compiled import CompiledStep, CompileOptions, StepSource
from kauldron_core.train.step.source import step_source
from kauldron_core.train.trainer import Trainer


class Tracing:
    """Tries out which numbers of one experiment can be traced.

    Args:
      cfg: Its config.
      trainer: What it describes.
      numbers: Paths of the numbers in question.
    """

    def __init__(self, cfg: Any, trainer: Trainer, numbers: Sequence[str]):
        self._source = step_source(cfg, others=numbers)
        self._batch = trainer.train_ds.element_spec

    @property
    def numbers(self) -> Mapping[str, Any]:
        """All numbers that may be arguments, by path."""
        return self._source.blueprint.numbers

    def mistake(self) -> Exception | None:
        """Returns what tracing raises without any argument, None if nothing."""
        return self._traced((), (), tables=())

    def error(self, path: str) -> Exception | None:
        """Returns what tracing raises with this number as an argument, None if nothing."""
        return self._traced((path,), tuple(as_arguments({path: self.numbers[path]}).values()), tables=())

    def table_for(self, path: str) -> str | None:
        """Returns the path of the innermost schedule that holds the number, if a table can take its place."""
        table = schedule_above(self._source.blueprint.cfg, path)
        if table is None or self._traced((table,), (np.zeros((2,), np.float32),), tables=(table,)) is not None:
            return None
        return table

    def _traced(self, names: tuple[str, ...], values: tuple[Any, ...], *, tables: Sequence[str]) -> Exception | None:
        structure = CompiledStep(
            lambda numbers: build(self._source, numbers, tables=tables),
            names,
            compilation=CompileOptions(),
            batch=self._batch,
        )
        try:
            structure.trace(values)
        except Exception as error:  # Whatever it raises: the number is no argument.
            return error
        return None


def schedule_above(cfg: Any, path: str) -> str | None:
    """Returns the path of the innermost schedule that holds a number."""
    parts = paths.parse(path)
    for length in range(len(parts) - 1, 0, -1):
        try:
            node = _at(cfg, parts[:length])
            if isinstance(node, konfig.ConfigDict) and is_schedule(konfig.resolve(node)):
                return paths.format(parts[:length])
        except Exception:  # It can't be built alone, so it is no schedule that can be tabulated.
            continue
    return None


def traced_table_of(cfg: Any, path: str, number: str, *, num_steps: int) -> np.ndarray:
    """Returns the values of the schedule at `path` with one of its numbers traced."""
    node, below = _at(cfg, paths.parse(path)), paths.parse(number)[len(paths.parse(path)) :]

    def table(value: Any) -> Any:
        schedule = konfig.resolve(node, overlay={paths.format(below): value})
        return jax.vmap(schedule)(np.arange(num_steps + 1, dtype=np.int32))

    (value,) = as_arguments({number: _at(node, below)}).values()
    return np.asarray(jax.jit(table)(value))


def build(source: StepSource, numbers: Mapping[str, Any], *, tables: Sequence[str]) -> Any:
    """Returns the program with these numbers and tabulated schedules; one that is read in two places stays one."""
    cfg = source.blueprint.cfg
    made: dict[int, Tabulated] = {}
    for path in tables:
        made.setdefault(id(_at(cfg, paths.parse(path))), Tabulated(numbers[path]))
    return source.program({**numbers} | {path: made[id(_at(cfg, paths.parse(path)))] for path in tables})


def tables_among(source: StepSource, arguments: Sequence[str]) -> tuple[str, ...]:
    """Returns those arguments that are schedules, not numbers."""
    return tuple(path for path in arguments if path not in source.blueprint.numbers)


def values_of(cfg: Any, arguments: Sequence[str], *, num_steps: int) -> list[jax.Array]:
    """Returns the arguments of one experiment: scalars of weak types, and tables."""
    source = step_source(cfg, others=arguments)
    tables = tables_among(source, arguments)
    numbers = as_arguments({path: source.blueprint.numbers[path] for path in arguments if path not in tables})
    found = {path: jax.device_put(table_of(cfg, path, num_steps=num_steps)) for path in tables}
    return [numbers[path] if path in numbers else found[path] for path in arguments]


def table_of(cfg: Any, path: str, *, num_steps: int) -> np.ndarray:
    """Returns the values of the schedule at `path`."""
    return tabulate(konfig.resolve(_at(cfg, paths.parse(path))), num_steps=num_steps)


def stacked_arguments(values: Sequence[Sequence[Any]]) -> tuple[jax.Array, ...]:
    """Returns the arguments of members, each a sequence, stacked for each argument; weak types stay weak."""
    return tuple(_concatenated([value[None] for value in column]) for column in zip(*values, strict=True))


def quickly_compiled(function: Any, *args: Any) -> Any:
    """Returns a compiled function for such arguments, which took half the time of one that is fast."""
    return function.lower(*args).compile(compiler_options={"xla_backend_optimization_level": 0})


def _at(cfg: Any, parts: Sequence[Any]) -> Any:
    for part in parts:
        cfg = cfg[part]
    return cfg


def _concatenated(parts: list[Any]) -> jax.Array:
    # In small groups: one program of a thousand operands takes seconds to compile.
    while len(parts) > 1:
        parts = [_concatenate(*parts[start : start + 32]) for start in range(0, len(parts), 32)]
    return parts[0]


@jax.jit
def _concatenate(*parts: Any) -> jax.Array:
    return jax.lax.concatenate(parts, 0)
