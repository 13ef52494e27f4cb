"""How many trials fit into memory."""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.extend as jex
import numpy as np

from kauldron_core.packs.planning.tracing import build, quickly_compiled, stacked_arguments, tables_among, values_of
from kauldron_core.packs.running.programs import PackedPrograms
from kauldron_core.train.step import program as program_lib
from kauldron_core.train.step.program import Outputs
from kauldron_core.train.step.source import step_source
from kauldron_core.train.trainer import Trainer

DEVICE_SHARE = 0.8
"""The part of a device's memory that a pack may take."""
HOST_SHARE = 0.5
"""The part of the free memory of the host that a pack may take where the host is the device."""

_OUTPUTS = Outputs(losses=True, metrics=True)
_MEASURED_AT = (2, 4)  # One trial would be simplified to a program without the dimension for it.


def most_in_memory(
    cfg: Any,
    trainer: Trainer,
    arguments: Sequence[str],
    count: int,
    *,
    has_own_batches: bool = False,
    memory_bytes: int | None = None,
) -> tuple[int | None, str]:
    """Returns how many trials fit into memory, None if `count` do; and why.

    The step is compiled, for few trials, only where the sum of all that it computes does not fit: what it takes grows
    by the same for each further trial.

    Args:
      cfg: Config of one of the trials.
      trainer: What it describes.
      arguments: In what they may differ.
      count: How many there are.
      has_own_batches: Whether each has a batch of its own.
      memory_bytes: The memory; None is a share of what there is.
    """
    memory_bytes, where = (memory_bytes, "memory_bytes") if memory_bytes else _all_memory()
    step = _Step(cfg, trainer, arguments, has_own_batches=has_own_batches)
    if step.bound() * count <= memory_bytes:
        return None, ""
    low, high = (step.compiled_bytes(size) for size in _MEASURED_AT)
    each = max((high - low) / (_MEASURED_AT[1] - _MEASURED_AT[0]), 1.0)
    fixed = max(low - _MEASURED_AT[0] * each, 0.0)
    most = max(math.floor((memory_bytes - fixed) / each), 1)
    why = f"a trial takes {text_of(each)}, and {where} is {text_of(memory_bytes)}"
    return (None, "") if most >= count else (most, why)


def memory() -> tuple[int, str]:
    """Returns the memory that a pack may take on this process's device, and whose it is."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"] * DEVICE_SHARE), f"{DEVICE_SHARE:.0%} of the device's memory"
    return int(_host_bytes() * HOST_SHARE), f"{HOST_SHARE:.0%} of the free memory of this machine"


def _all_memory() -> tuple[int, str]:
    """Returns the memory that a pack may take on all devices, among which its trials are dealt out."""
    each, where = memory()
    count = 1 if jax.default_backend() == "cpu" else jax.device_count()  # Devices of a CPU share its memory.
    return each * count, where if count == 1 else f"{where}, times {count},"


def bytes_of(tree: Any) -> int:
    """Returns the bytes of arrays, or of their shapes."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def text_of(num_bytes: float) -> str:
    """Returns a size as `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.4g} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.4g} GiB"


class _Step:
    """The step of a pack, of which nothing is run."""

    def __init__(self, cfg: Any, trainer: Trainer, arguments: Sequence[str], *, has_own_batches: bool):
        source = step_source(cfg, others=arguments)
        tables = tables_among(source, arguments)
        self._build = lambda numbers: build(source, numbers, tables=tables)
        self._arguments = tuple(arguments)
        self._values = values_of(cfg, arguments, num_steps=trainer.last_step)
        self._batch = trainer.train_ds.element_spec
        self._has_own_batches = has_own_batches

    def bound(self) -> int:
        """Returns more bytes than one trial takes: of its states, and of all that a step computes."""

        def one(values: Sequence[Any], batch: Any) -> Any:
            program = self._build(dict(zip(self._arguments, values, strict=True)))
            state = program_lib.init_state(program, batch)
            return program_lib.update(program, state, batch, _OUTPUTS)

        closed, (state, _) = jax.make_jaxpr(one, return_shape=True)(self._values, self._batch)
        return bytes_of(self._batch) + 2 * bytes_of(state) + sum(_computed(closed.jaxpr))

    def compiled_bytes(self, size: int) -> int:
        """Returns the bytes that the compiled step takes for so many trials."""
        programs = PackedPrograms(self._build, self._arguments, has_own_batches=self._has_own_batches)
        numbers = stacked_arguments([self._values] * size)
        states = jax.eval_shape(programs.init, numbers, self._batch)
        call: Any = programs.call(_OUTPUTS, size=1)
        batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape), leaf.dtype), self._batch)
        found = quickly_compiled(
            call, numbers, states, batch if self._has_own_batches else self._batch
        ).memory_analysis()
        taken = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
        return taken - found.alias_size_in_bytes


def _computed(jaxpr: Any) -> Iterator[int]:
    """Yields the bytes of everything that a program computes, inner programs included."""
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            shape, dtype = getattr(variable.aval, "shape", ()), getattr(variable.aval, "dtype", np.dtype(np.int32))
            yield math.prod(shape) * getattr(dtype, "itemsize", 8)
        for inner in jex.core.jaxprs_in_params(equation.params):
            yield from _computed(inner)


def _host_bytes() -> int:
    """Returns the free memory of the host, or of the control group that this process is in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lines = _read("/proc/meminfo").splitlines()
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limit, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    group = [int(limit) - int(used)] if limit.isdigit() and used.isdigit() else []
    return max(min([total, *free, *group]), 0)


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""
