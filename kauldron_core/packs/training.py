"""Trains a pack: many trials in one program, each of which stays itself."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core import konfig
from kauldron_core.errors import ConfigError
from kauldron_core.evals import EvaluationStopped
from kauldron_core.forward import Health, TrainState, as_arguments
from kauldron_core.losses import named_losses
from kauldron_core.packs import planner
from kauldron_core.packs.checkpoints import StackedCheckpoints, Standing
from kauldron_core.packs.evaluation import Heritage, evaluate
from kauldron_core.packs.members import MemberEvent, Members
from kauldron_core.packs.programs import PackedPrograms
from kauldron_core.train import reports
from kauldron_core.train.events import Done, Evaluated, Logged, Saved
from kauldron_core.train.layout import stacked, zeros_like
from kauldron_core.train.loop import drain
from kauldron_core.train.program import StepReport
from kauldron_core.train.trainer import Trainer, step_source

_ASK_EVERY_S = 1.0

StopMembers = Callable[[], Container[int]]
"""Returns the places of the trials, in the list of configs, that are to end."""


@dataclasses.dataclass(frozen=True)
class Packed:
    """How a pack ended.

    Attributes:
      members: Places of the trials in the list of configs.
      states: Their states, with a first dimension for the trial.
      statuses: How each ended.
    """

    members: tuple[int, ...]
    states: TrainState
    statuses: tuple[str, ...]

    def state_of(self, member: int) -> TrainState:
        """Returns the state of one trial."""
        return _row(self.states, self.members.index(member))


def train(
    configs: Sequence[Any], pack: planner.Pack | None = None, *, folder: str | os.PathLike[str] | None = None
) -> Packed:
    """Trains a pack to its end. See `iter_train`."""
    return drain(iter_train(configs, pack, folder=folder))


def iter_train(
    configs: Sequence[Any],
    pack: planner.Pack | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    stop: threading.Event | None = None,
    stop_members: StopMembers | None = None,
) -> Generator[MemberEvent, None, Packed]:
    """Trains the trials of a pack; yields their events.

    Each trial writes the events that it would write alone, to its own workdir. One that diverges ends; the others
    do not notice. All states are saved in one checkpoint, and each trial has a pointer to its row where a checkpoint of
    its own would be: whatever loads that can load this. Called again, it goes on from the last one, and tells first how
    those ended that had ended before it.

    Args:
      configs: Configs of trainers.
      pack: Which of them, as `plan` made it; all of them where None.
      folder: The folder of the pack, `RUN/packs/ID`, for its checkpoints; None saves none.
      stop: When set, all is saved at the end of the running call, and those that still train end as preempted.
      stop_members: Asked now and then, at most once a second, who is to end: what it has learned is saved at the end of
        the running call, and it ends as stopped. The bits of the others do not depend on it.

    Raises:
      ConfigError: If they can't be trained together.
    """
    if pack is None:
        packs = planner.plan(configs).packs
        if len(packs) != 1:
            raise ConfigError(f"{len(configs)} trials make {len(packs)} packs, not one; train them one by one.")
        (pack,) = packs
    with contextlib.closing(_Training(configs, pack, folder)) as training:
        yield from training.run(stop or threading.Event(), _Asking(stop_members))
        return training.result()


class _Asking:
    """Asks who is to end, now and then."""

    def __init__(self, stop_members: StopMembers | None):
        self._stop_members = stop_members
        self._asked_at = -_ASK_EVERY_S

    def __call__(self) -> Container[int]:
        now = time.monotonic()
        if self._stop_members is None or now - self._asked_at < _ASK_EVERY_S:
            return ()
        self._asked_at = now
        return self._stop_members()


class _Training:
    """One pack while it trains."""

    def __init__(self, configs: Sequence[Any], pack: planner.Pack, folder: str | os.PathLike[str] | None):
        self._pack = pack
        trainers: list[Trainer] = [konfig.resolve(configs[index]) for index in pack.members]
        self._members = Members(pack.members, trainers)
        self._lead = trainers[0]
        self.last_step = self._lead.last_step
        self._losses = sorted(dict(named_losses(self._lead.train_losses)))
        source = step_source(configs[pack.members[0]], others=pack.arguments)
        self._tables = _tables(source, pack)
        self._numbers = self._stack_numbers(configs)
        self._rows = list(range(len(trainers)))
        self._data: list[Any] = _data_of(trainers)
        self._programs = PackedPrograms(
            lambda numbers: planner.build(source, numbers, tables=self._tables),
            pack.arguments,
            has_own_batches=len(self._data) > 1,
        )
        self._heritage = Heritage.of(configs[pack.members[0]], pack.arguments, self._tables)
        self._held: tuple[int, StepReport] | None = None
        self._evaluated: set[str] = set()
        self._saves = None
        if folder is not None and self._lead.checkpointer is not None:
            members = [configs[index] for index in pack.members]
            self._saves = StackedCheckpoints(folder, trainers, identity=_identity(members))

    def run(self, stop: threading.Event, asked: Callable[[], Container[int]]) -> Iterator[MemberEvent]:
        """Trains; yields events."""
        step = yield from self._restore_or_init()
        is_cut = yield from self._evaluate(step, stop)
        while step < self.last_step and self._members.running and not is_cut:
            if stop.is_set():
                is_cut = True
                break
            step, report = self._advance(step)
            # Fetched late: the devices work on while the host writes.
            if report is not None or self._is_report_ready():
                yield from self._flush()
            if report is not None:
                self._held = (step, report)
            if self._is_evaluated_at(step):
                yield from self._flush()
                is_cut = yield from self._evaluate(step, stop)
            leaving = self._members.placed_at(asked())
            is_cut = is_cut or (stop.is_set() and step < self.last_step)
            if leaving or is_cut or self._is_saved_at(step):
                yield from self._flush()
                yield from self._save(step, leaving)
            yield from self._commits()
        yield from self._flush()
        yield from self._finish(step, is_cut)

    def result(self) -> Packed:
        return Packed(self._pack.members, self._states, self._members.statuses)

    def close(self) -> None:
        parts: list[Any] = [self._saves, self._members, *self._data]
        for part in parts:
            if hasattr(part, "close"):
                part.close()

    def _advance(self, step: int) -> tuple[int, StepReport | None]:
        """Makes the call after `step`; returns the step it ends at, and its report."""
        size = self._lead.steps_per_call
        end = self._lead.end_of_call(step, last_step=self.last_step, is_cut_at=self._is_cut_at)
        outputs = self._lead.outputs_at(end, last_step=self.last_step)
        call = self._programs.call(outputs, size=size)
        batches = [self._next_batch() for _ in range(step, end)]
        self._evaluated.clear()
        if size == 1:
            self._states, report = call(self._numbers, self._states, batches[0])
        else:
            self._states, report = call(self._numbers, self._states, stacked(batches, size=size), len(batches))
        return end, report

    def _stack_numbers(self, configs: Sequence[Any]) -> tuple[jax.Array, ...]:
        rows = []
        for index in self._pack.members:
            numbers = step_source(configs[index], others=self._pack.arguments).blueprint.numbers
            values = as_arguments({path: numbers[path] for path in self._pack.arguments if path not in self._tables})
            for path in self._tables:
                table = planner.table_of(configs[index], path, num_steps=self.last_step)
                values[path] = jax.device_put(table)
            rows.append([values[path] for path in self._pack.arguments])
        return planner.stacked_arguments(rows)

    def _next_batch(self) -> Any:
        if len(self._data) == 1:
            return next(self._data[0])
        batches = [next(data) for data in self._data]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *batches)

    def _is_cut_at(self, step: int) -> bool:
        return self._should_save(step) or self._is_evaluated_at(step)

    def _restore_or_init(self) -> Generator[MemberEvent, None, int]:
        """Makes the states, or reads those of the last checkpoint; returns their step."""
        batch = zeros_like(self._lead.train_ds.element_spec)
        found = None
        if self._saves is not None:
            spec = jax.eval_shape(self._programs.init, self._numbers, batch)
            found = self._saves.load(lambda size: _resized(spec, size))
        if found is None:
            yield from self._members.begin(None, {})
            self._states = self._programs.init(self._numbers, batch)
            return 0
        step, states, standing = found
        yield from self._members.begin(step, standing.ended)
        self._states = jax.device_put(states)
        self._evaluated = set(standing.evaluated)
        for data, state in zip(self._data, standing.iterators, strict=True):
            data.set_state(state)
        return step

    def _is_saved_at(self, step: int) -> bool:
        is_due = self._saves is not None and (step == self.last_step or self._saves.is_due(step))
        return is_due or self._should_save(step)

    def _should_save(self, step: int) -> bool:
        """Returns whether the number of the step makes a checkpoint due."""
        keeper = self._lead.checkpointer
        return self._saves is not None and keeper is not None and keeper.should_save(step)

    def _save(self, step: int, leaving: Sequence[int]) -> Iterator[MemberEvent]:
        """Starts to save; those who leave end once they are saved."""
        yield from self._end_unsound(step)
        leaving = [index for index in leaving if index in self._members.running]
        ends = {index: Done(step=step, status="stopped", reason="stopped on request") for index in leaving}
        if self._saves is not None and self._members.running:
            ended = self._members.ended() | {str(index): dataclasses.asdict(done) for index, done in ends.items()}
            standing = Standing(
                rows=tuple(self._rows),
                iterators=[data.get_state() for data in self._data],
                ended=ended,
                pointed=tuple(self._members.running),
                evaluated=tuple(sorted(self._evaluated)),
            )
            self._saves.save(self._states, standing, step=step)
            if ends:
                self._saves.wait()
                yield from self._commits()
        for index, done in ends.items():
            yield self._members.end(index, done)

    def _commits(self) -> Iterator[MemberEvent]:
        for step, indices in self._saves.finished() if self._saves is not None else ():
            for index in indices:
                yield self._members.tell(index, Saved(step))

    def _end_unsound(self, step: int) -> Iterator[MemberEvent]:
        if self._lead.on_nonfinite == "ignore":
            return
        sound = jax.device_get(self._programs.are_sound(self._states))
        for row, index in self._running():
            if not sound[row]:
                yield self._ended(index, step, "diverged", f"the state was not finite after step {step}")

    def _is_evaluated_at(self, step: int) -> bool:
        return any(evaluator.run.should_run(step, step >= self.last_step) for evaluator in self._lead.inline_evals)

    def _evaluate(self, step: int, stop: threading.Event) -> Generator[MemberEvent, None, bool]:
        """Runs the evaluators that are due and have not run at this step; returns whether it was asked to stop."""
        for name, evaluator in self._lead.evals.items():
            is_due = not evaluator.run.is_standalone and evaluator.run.should_run(step, step >= self.last_step)
            running = self._running()
            if not is_due or name in self._evaluated or not running:
                continue
            evaluators = [self._members.trainers[index].evals[name] for _, index in running]
            numbers = dict(zip(self._pack.arguments, self._numbers, strict=True))
            values = [numbers[path] for path in self._heritage.names]
            rows = [row for row, _ in running]
            try:
                results = evaluate(evaluators, self._states, self._heritage, values, rows=rows, stop=stop)
            except EvaluationStopped:
                return True
            for (_, index), result in zip(running, results, strict=True):
                event = Evaluated(step, name, result.values, result.num_examples, result.seconds)
                yield self._members.tell(index, event)
            self._evaluated.add(name)
        return False

    def _is_report_ready(self) -> bool:
        # One program computes all of it, so one array speaks for all.
        return self._held is not None and self._held[1].health.is_ready()  # pyright: ignore[reportAttributeAccessIssue]

    def _flush(self) -> Iterator[MemberEvent]:
        """Yields what the last report says of each trial; waits for it."""
        if self._held is None:
            return
        (step, report), self._held = self._held, None
        report = jax.device_get(report)
        for row, index in self._running():
            own = _row(report, row)
            health = Health.of(own.health)
            values = reports.values_of(own.aux.to_host(), own, health, on_nonfinite=self._lead.on_nonfinite)
            yield self._members.tell(index, Logged(step=step, split="train", values=values))
            if self._lead.on_nonfinite == "stop" and health.first_bad_step > 0:
                yield self._ended(index, step, "diverged", reports.describe(health, self._losses))

    def _finish(self, step: int, is_cut: bool) -> Iterator[MemberEvent]:
        yield from self._end_unsound(step)
        if self._saves is not None:
            self._saves.wait()
        yield from self._commits()
        for index in self._members.running:
            if is_cut:
                yield self._ended(index, step, "preempted", "stopped on request")
            else:
                yield self._ended(index, step, "done", "")

    def _ended(self, index: int, step: int, status: Any, reason: str) -> MemberEvent:
        return self._members.end(index, Done(step=step, status=status, reason=reason))

    def _running(self) -> list[tuple[int, int]]:
        """Returns the row and the index of each trial that still trains."""
        running = set(self._members.running)
        return [(row, index) for row, index in enumerate(self._rows) if index in running]


def _identity(configs: Sequence[Any]) -> str:
    """Returns what is equal for the same trials, wherever they lie and however far they are to go."""
    ignored = ("workdir", "num_train_steps", "stop_after_steps")
    return konfig.fingerprint([{key: cfg[key] for key in cfg if key not in ignored} for cfg in configs])


def _tables(source: Any, pack: planner.Pack) -> tuple[str, ...]:
    """Returns those arguments that are schedules, not numbers."""
    return tuple(path for path in pack.arguments if path not in source.blueprint.numbers)


def _data_of(trainers: Sequence[Trainer]) -> list[Any]:
    """Returns one iterator where all trials read the same in the same order, else one for each."""
    seeds = {trainer.train_ds.seed for trainer in trainers}
    first = trainers[0].train_ds
    if len(seeds) == 1 or not first.shuffle:
        return [iter(first)]
    # The same data in another order: read once.
    return [iter(dataclasses.replace(first, seed=trainer.train_ds.seed)) for trainer in trainers]


def _row(tree: Any, row: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[row], tree)


def _resized(spec: Any, size: int) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype), spec)
