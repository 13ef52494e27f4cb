"""The first steps of trials, alone as they would be without packs, and packed."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from kauldron_core import konfig
from kauldron_core.packs.planning.differences import DATA_SEED, SEED
from kauldron_core.packs.planning.tracing import build, quickly_compiled, stacked_arguments, tables_among, values_of
from kauldron_core.packs.running.programs import PackedPrograms
from kauldron_core.train.step.compiled import CompiledStep, CompileOptions
from kauldron_core.train.step.layout import zeros_like
from kauldron_core.train.step.program import Outputs
from kauldron_core.train.step.source import step_source
from kauldron_core.train.trainer import Trainer

NUM_STEPS = 3
OUTPUTS = Outputs(losses=True, metrics=True)


class Outcome(NamedTuple):
    """What the first steps came to: arrays on the host, by name.

    Attributes:
      start: What is learned, before the first step.
      end: The same after the last one.
      told: The state of the optimizer after the last step, and what each step tells.
    """

    start: dict[str, np.ndarray]
    end: dict[str, np.ndarray]
    told: dict[str, np.ndarray]

    @classmethod
    def of(cls, start: Any, end: Any, reports: Sequence[Any]) -> Outcome:
        """Returns the outcome of steps that led from one state to another."""
        told = [
            {"losses": report.aux.loss_states, "metrics": report.aux.metric_states, "schedules": report.schedules}
            for report in reports
        ]
        rest = {"opt_state": end.opt_state, "steps": told, "step": end.step}
        return cls(_named(_learned(start)), _named(_learned(end)), _named(rest))

    def row(self, row: int) -> Outcome:
        """Returns the outcome of one trial of a pack."""
        return Outcome(*({name: leaf[row] for name, leaf in part.items()} for part in self))

    @property
    def is_finite(self) -> bool:
        """Whether no number of the model, and none that was told, is infinite or NaN."""
        arrays = [*self.end.values(), *(leaf for name, leaf in self.told.items() if name.startswith("steps"))]
        return all(np.isfinite(leaf.astype(np.float64)).all() for leaf in arrays if is_float(leaf))


def is_float(leaf: Any) -> bool:
    """Returns whether an array holds floats, of whatever size."""
    return jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)


def _learned(state: Any) -> dict[str, Any]:
    return {"params": state.params, "collections": state.collections}


def _named(tree: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree.leaves_with_path(jax.device_get(tree))
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}


class Member:
    """A trial of which only the first steps are of interest.

    Args:
      cfg: Its config, references replaced by their values.
      batches: The first batches that it reads, where they are known.
    """

    def __init__(self, cfg: Any, batches: Sequence[Any] | None = None):
        self.cfg = cfg
        self._batches = batches

    def replaced(self, values: Mapping[str, Any]) -> Member:
        """Returns the trial with other values of some leaves."""
        has_own_order = any(path in (SEED, DATA_SEED) for path in values)
        return Member(konfig.with_values(self.cfg, values), None if has_own_order else self.batches)

    def value(self, path: str) -> Any:
        """Returns the value of a leaf."""
        return konfig.flatten(self.cfg).get(path)

    @functools.cached_property
    def trainer(self) -> Trainer:
        """What the config describes."""
        return konfig.resolve(self.cfg)

    @functools.cached_property
    def batches(self) -> Sequence[Any]:
        """The first batches that it reads."""
        if self._batches is not None:
            return self._batches
        data = iter(self.trainer.train_ds)
        try:
            return [next(data) for _ in range(min(NUM_STEPS, self.trainer.last_step))]
        finally:
            if hasattr(data, "close"):
                data.close()  # pyright: ignore[reportAttributeAccessIssue]


class Alone:
    """A trial alone. Its numbers are those of Python, parts of the program: nothing is an argument.

    Args:
      member: The trial.
    """

    def __init__(self, member: Member):
        self._member = member
        spec = member.trainer.train_ds.element_spec
        structure = CompiledStep(step_source(member.cfg).program, compilation=CompileOptions(), batch=spec)
        self._batch = zeros_like(spec)
        self._start = jax.device_get(quickly_compiled(structure.init, (), self._batch)((), self._batch))
        self._traced = structure.step(OUTPUTS)
        self._step = quickly_compiled(self._traced, (), self._start, self._batch)

    def run(self) -> Outcome:
        """Makes the first steps."""
        return self._run(self._start)

    def run_with_noise(self) -> Outcome:
        """Makes the first steps from parameters with an error as large as rounding makes."""
        eps = self._least_precision()
        noise = np.random.default_rng(0)

        def shaken(leaf: Any) -> Any:
            factors = 1 + 4 * eps * noise.uniform(-1, 1, leaf.shape)
            return (leaf * factors).astype(leaf.dtype) if is_float(leaf) else leaf

        return self._run(self._start.replace(params=jax.tree.map(shaken, self._start.params)))

    def _run(self, start: Any) -> Outcome:
        state, reports = jax.device_put(start), []
        for batch in self._member.batches:
            state, report = self._step((), state, batch)
            reports.append(report)
        return Outcome.of(start, state, reports)

    def _least_precision(self) -> float:
        """Returns the relative error of the least exact type of float that the step computes in."""
        text = str(jax.make_jaxpr(self._traced)((), self._start, self._batch))
        names = {"bf16[": jax.numpy.bfloat16, "f16[": np.float16, "f32[": np.float32}
        found = [float(jax.numpy.finfo(dtype).eps) for name, dtype in names.items() if name in text]
        return max(found, default=float(np.finfo(np.float64).eps))


class Packed:
    """Trials in one program, as a pack trains them.

    Args:
      member: One of them.
      arguments: In what they differ.
      has_own_batches: Whether they may read different batches.
    """

    def __init__(self, member: Member, arguments: Sequence[str], *, has_own_batches: bool):
        source = step_source(member.cfg, others=arguments)
        tables = tables_among(source, arguments)
        self._arguments = tuple(arguments)
        self._num_steps = member.trainer.last_step
        self._batch = zeros_like(member.trainer.train_ds.element_spec)
        self._has_own_batches = has_own_batches
        self._programs = PackedPrograms(
            lambda numbers: build(source, numbers, tables=tables), self._arguments, has_own_batches=has_own_batches
        )
        self._compiled: list[tuple[Any, Any]] = []

    def run(self, members: Sequence[Member]) -> list[Outcome]:
        """Makes the first steps of some trials together, always of the same number of them."""
        numbers, batches, reports = self._numbers(members), self._batches(members), []
        if not self._compiled:
            self._compiled.append(self._compile(numbers, batches[0]))
        init, step = self._compiled[0]
        states = init(numbers, self._batch)
        start = jax.device_get(states)
        for batch in batches:
            states, report = step(numbers, states, batch)
            reports.append(report)
        whole = Outcome.of(start, states, reports)
        return [whole.row(row) for row in range(len(members))]

    def _compile(self, numbers: Any, batch: Any) -> tuple[Any, Any]:
        states = jax.eval_shape(self._programs.init, numbers, self._batch)
        init = quickly_compiled(jax.jit(self._programs.init), numbers, self._batch)
        return init, quickly_compiled(self._programs.call(OUTPUTS, size=1), numbers, states, batch)

    def _numbers(self, members: Sequence[Member]) -> tuple[jax.Array, ...]:
        """Returns the arguments of trials, stacked."""
        rows = [values_of(member.cfg, self._arguments, num_steps=self._num_steps) for member in members]
        return stacked_arguments(rows)

    def _batches(self, members: Sequence[Member]) -> Sequence[Any]:
        """Returns the first batches of trials."""
        if not self._has_own_batches:
            return members[0].batches
        columns = zip(*(member.batches for member in members), strict=True)
        return [jax.tree.map(lambda *leaves: np.stack(leaves), *column) for column in columns]
