"""Whether a pack is faster than its trials alone: a few steps of both, timed."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core import konfig
from kauldron_core.packs.planning.tracing import build, stacked_arguments, tables_among, values_of
from kauldron_core.packs.running.data import PackData, open_data
from kauldron_core.packs.running.programs import PackedPrograms
from kauldron_core.train.step.program import Outputs
from kauldron_core.train.step.source import step_source
from kauldron_core.train.trainer import Trainer

_MAX_MEMBERS = 32
_REPEATS = 5
_SAMPLE_S = 0.05
_LIMIT_S = 3.0
_TRIAL_S = 0.1
"""What a trial costs besides its steps on a worker that is warm: to be handed out, to open and to save."""
_SILENT = Outputs()


@dataclasses.dataclass(frozen=True)
class Timing:
    """What a step of some trials takes.

    Attributes:
      num_trials: How many trials.
      num_steps: How many steps each makes.
      packed_s: A step of all of them, packed.
      alone_s: A step of one of them alone.
      num_measured: How many were in the pack that was timed; the rest is extrapolated.
      concurrency: How many would train side by side.
    """

    num_trials: int
    num_steps: int
    packed_s: float
    alone_s: float
    num_measured: int
    concurrency: int

    @property
    def all_alone_s(self) -> float:
        """A step of all of them alone, side by side as far as they would be."""
        return self.num_trials * self.alone_s / min(self.concurrency, self.num_trials)

    @property
    def is_faster(self) -> bool:
        """Whether they are trained sooner packed."""
        started_s = self.num_trials * _TRIAL_S / min(self.concurrency, self.num_trials)
        return self.num_steps * self.packed_s < self.num_steps * self.all_alone_s + started_s

    def __str__(self) -> str:
        workers = "1 worker" if self.concurrency == 1 else f"{self.concurrency} workers"
        measured = "" if self.num_measured == self.num_trials else f" (from {self.num_measured})"
        packed = f"packed {_ms(self.packed_s)} a step for all{measured}"
        alone = f"alone {self.num_trials} x {_ms(self.alone_s)} on {workers} = {_ms(self.all_alone_s)}"
        # Short trainings are mostly starting.
        starts = f", and {_TRIAL_S:g} s to start each" if self.is_faster and self.packed_s > self.all_alone_s else ""
        return f"{self.num_trials} trials: {packed}, {alone}{starts}{'' if self.is_faster else ', so they train alone'}"


def timed(configs: Sequence[Any], arguments: Sequence[str], *, concurrency: int) -> Timing:
    """Returns what a step of these trials takes. Raises whatever compiling and running them raises.

    Data is read as it would be; nothing is written.

    Args:
      configs: Configs of the trials of a pack.
      arguments: In what they differ.
      concurrency: How many would train side by side.
    """
    lead = konfig.resolve(configs[0])
    state = lead.trainstep.init(lead.train_ds.element_spec)
    rows = jax.device_get(state)
    with contextlib.closing(_endless(lead)) as batches:
        alone_s = _seconds(_calls_alone(lead, batches, state)) / lead.steps_per_call
    # A vmapped step may be several times slower than the steps it stands for.
    affordable = int(_LIMIT_S / (4 * alone_s * lead.steps_per_call))
    size = min(len(configs), _MAX_MEMBERS, max(affordable, 2))

    def packed_s(size: int) -> float:
        chosen = [configs[index * len(configs) // size] for index in range(size)]
        with contextlib.closing(open_data([konfig.resolve(cfg).train_ds for cfg in chosen])) as data:
            return _seconds(_calls_packed(chosen, lead, arguments, data, rows)) / lead.steps_per_call

    many_s = packed_s(size)
    found = Timing(len(configs), lead.last_step, many_s * len(configs) / size, alone_s, size, concurrency)
    few = size // 4
    if found.is_faster or size == len(configs) or few < 1:
        return found
    # In proportion is too much where a call costs more than what is in it.
    each_s = max(many_s - packed_s(few), 0.0) / (size - few)
    return dataclasses.replace(found, packed_s=many_s + (len(configs) - size) * each_s)


def _calls_alone(trainer: Trainer, data: Iterator[Any], state: Any) -> Callable[[], Any]:
    """Returns a function that makes one call of the compiled step, and returns what it gives."""
    size = trainer.steps_per_call
    states = [state]

    def call() -> Any:
        batches = list(itertools.islice(data, size))
        states[0], _ = trainer.trainstep.run(states[0], batches, _SILENT, size=size)
        return states[0]

    return call


def _calls_packed(
    configs: Sequence[Any], lead: Trainer, arguments: Sequence[str], data: PackData, state: Any
) -> Callable[[], Any]:
    source = step_source(configs[0], others=arguments)
    tables = tables_among(source, arguments)
    start, size = data.get_state(), lead.steps_per_call
    programs = PackedPrograms(
        lambda numbers: build(source, numbers, tables=tables), arguments, has_own_batches=not data.is_shared
    )
    numbers = stacked_arguments([values_of(cfg, arguments, num_steps=lead.last_step) for cfg in configs])
    # All begin alike: how long a step takes does not depend on it.
    states = [jax.tree.map(lambda leaf: jax.device_put(np.stack([leaf] * len(configs))), state)]
    step = programs.call(_SILENT, size=size)

    def batch() -> Any:
        return data.next_batch() if size == 1 else data.take(size, size=size)

    def call() -> Any:
        try:
            found = batch()
        except StopIteration:
            data.set_state(start)
            found = batch()
        states[0], _ = step(numbers, states[0], found, *(() if size == 1 else (size,)))
        return states[0]

    return call


def _endless(trainer: Trainer) -> Generator[Any]:
    """Yields batches, again from the first where they end."""
    while True:
        data = iter(trainer.train_ds)
        try:
            yield from data
        finally:
            if hasattr(data, "close"):
                data.close()  # pyright: ignore[reportAttributeAccessIssue]


def _seconds(call: Callable[[], Any]) -> float:
    """Returns the seconds of a call, the best of several."""
    jax.block_until_ready(call())
    began = time.perf_counter()
    jax.block_until_ready(call())
    first = time.perf_counter() - began
    count = max(int(_SAMPLE_S / max(first, 1e-6)), 1)
    samples = [first]
    while len(samples) <= _REPEATS and time.perf_counter() - began < _LIMIT_S:
        sample_began = time.perf_counter()
        for _ in range(count - 1):
            call()
        jax.block_until_ready(call())
        samples.append((time.perf_counter() - sample_began) / count)
    return min(samples)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
