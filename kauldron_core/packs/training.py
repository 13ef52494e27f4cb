"""Trains a pack: many trials in one program, each of which stays itself."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError
from kauldron_core.forward import Health, TrainState, as_arguments
from kauldron_core.losses import named_losses
from kauldron_core.packs import planner
from kauldron_core.packs.checkpoints import StackedCheckpoints
from kauldron_core.packs.programs import PackedPrograms
from kauldron_core.train import reports
from kauldron_core.train import writer as writer_lib
from kauldron_core.train.events import Done, Evaluated, Event, Logged, Saved
from kauldron_core.train.layout import stacked, zeros_like
from kauldron_core.train.loop import drain
from kauldron_core.train.program import StepReport
from kauldron_core.train.trainer import Trainer, step_source


@dataclasses.dataclass(frozen=True)
class MemberEvent:
    """An event of one trial of a pack.

    Attributes:
      member: Place of the trial in the list of configs.
      event: What happened.
    """

    member: int
    event: Event


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
    configs: Sequence[Any], pack: planner.Pack | None = None, *, folder: str | os.PathLike[str] | None = None
) -> Generator[MemberEvent, None, Packed]:
    """Trains the trials of a pack; yields their events.

    Each trial writes the events that it would write alone, to its own workdir. One that diverges ends; the others
    do not notice. All states are saved in one checkpoint, and each trial has a pointer to its row where a checkpoint of
    its own would be: whatever loads that can load this. Called again, it goes on from the last one.

    Args:
      configs: Configs of trainers.
      pack: Which of them, as `plan` made it; all of them where None.
      folder: The folder of the pack, `RUN/packs/ID`, for its checkpoints; None saves none.

    Raises:
      ConfigError: If they can't be trained together.
    """
    if pack is None:
        packs = planner.plan(configs).packs
        if len(packs) != 1:
            raise ConfigError(f"{len(configs)} trials make {len(packs)} packs, not one; train them one by one.")
        (pack,) = packs
    with contextlib.closing(_Training(configs, pack, folder)) as training:
        yield from training.run()
        return training.result()


class _Training:
    """One pack while it trains."""

    def __init__(self, configs: Sequence[Any], pack: planner.Pack, folder: str | os.PathLike[str] | None):
        self._pack = pack
        self._trainers: list[Trainer] = [konfig.resolve(configs[index]) for index in pack.members]
        self._lead = self._trainers[0]
        self.last_step = self._lead.last_step
        self._losses = sorted(dict(named_losses(self._lead.train_losses)))
        source = step_source(configs[pack.members[0]], others=pack.arguments)
        self._tables = _tables(source, pack)
        self._numbers = self._stack_numbers(configs)
        self._logs = [trainer.writer.open() for trainer in self._trainers]
        self._status = ["running"] * len(self._trainers)
        self._data: list[Any] = _data_of(self._trainers)
        self._programs = PackedPrograms(
            lambda numbers: planner.build(source, numbers, tables=self._tables),
            pack.arguments,
            has_own_batches=len(self._data) > 1,
        )
        self._held: tuple[int, StepReport] | None = None
        self._saves = None
        if folder is not None and self._lead.checkpointer is not None:
            members = [configs[index] for index in pack.members]
            self._saves = StackedCheckpoints(folder, self._trainers, identity=_identity(members))

    def run(self) -> Iterator[MemberEvent]:
        """Trains; yields events."""
        step = self._restore_or_init()
        if step == 0:
            yield from self._evaluate(step)
        size = self._lead.steps_per_call
        while step < self.last_step and "running" in self._status:
            end = self._lead.end_of_call(step, last_step=self.last_step, is_cut_at=self._is_cut_at)
            outputs = self._lead.outputs_at(end, last_step=self.last_step)
            call = self._programs.call(outputs, size=size)
            batches = [self._next_batch() for _ in range(step, end)]
            if size == 1:
                self._states, report = call(self._numbers, self._states, batches[0])
            else:
                stack = stacked(batches, size=size)
                self._states, report = call(self._numbers, self._states, stack, len(batches))
            step = end
            # Fetched one report late: the devices work on while the host writes.
            if report is not None:
                yield from self._flush()
                self._held = (step, report)
            if self._is_evaluated_at(step):
                yield from self._flush()
                yield from self._evaluate(step)
            if self._is_saved_at(step):
                yield from self._flush()
                yield from self._save(step)
            yield from self._commits()
        yield from self._flush()
        yield from self._finish(step)

    def result(self) -> Packed:
        return Packed(self._pack.members, self._states, tuple(self._status))

    def close(self) -> None:
        parts: list[Any] = [self._saves, *self._logs, *self._data]
        for part in parts:
            if hasattr(part, "close"):
                part.close()

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
        return self._is_evaluated_at(step) or self._is_saved_at(step)

    def _restore_or_init(self) -> int:
        """Makes the states, or reads those of the last checkpoint; returns their step."""
        batch = zeros_like(self._lead.train_ds.element_spec)
        found = None
        if self._saves is not None:
            found = self._saves.load(jax.eval_shape(self._programs.init, self._numbers, batch))
        for log in self._logs:
            if log is not None and (found or log.attempt > 1):
                log.append(rundir.RESUMED_FROM, found.step if found else -1)
        if found is None:
            self._states = self._programs.init(self._numbers, batch)
            return 0
        self._states, self._status = found.state, list(found.data_state["statuses"])
        for data, state in zip(self._data, found.data_state["iterators"], strict=True):
            data.set_state(state)
        return found.step

    def _is_saved_at(self, step: int) -> bool:
        keeper = self._lead.checkpointer
        return self._saves is not None and keeper is not None and (step == self.last_step or keeper.should_save(step))

    def _save(self, step: int) -> Iterator[MemberEvent]:
        yield from self._end_unsound(step)
        if self._saves is not None and self._running():
            iterators = [data.get_state() for data in self._data]
            self._saves.save(self._states, iterators, self._status, step=step)

    def _commits(self) -> Iterator[MemberEvent]:
        for step, rows in self._saves.finished() if self._saves is not None else ():
            for row in rows:
                yield self._told(row, Saved(step))

    def _end_unsound(self, step: int) -> Iterator[MemberEvent]:
        if self._lead.on_nonfinite == "ignore":
            return
        sound = jax.device_get(self._programs.are_sound(self._states))
        for row in self._running():
            if not sound[row]:
                yield self._ended(row, step, "diverged", f"the state was not finite after step {step}")

    def _is_evaluated_at(self, step: int) -> bool:
        return any(evaluator.run.should_run(step, step >= self.last_step) for evaluator in self._lead.inline_evals)

    def _evaluate(self, step: int) -> Iterator[MemberEvent]:
        for row in self._running():
            for evaluator in self._trainers[row].inline_evals:
                if evaluator.run.should_run(step, step >= self.last_step):
                    result = evaluator.evaluate(_row(self._states, row))
                    values = result.values
                    yield self._told(row, Evaluated(step, evaluator.name, values, result.num_examples, result.seconds))

    def _flush(self) -> Iterator[MemberEvent]:
        """Yields what the last report says of each trial; waits for it."""
        if self._held is None:
            return
        (step, report), self._held = self._held, None
        report = jax.device_get(report)
        for row in self._running():
            own = _row(report, row)
            health = Health.of(own.health)
            values = reports.values_of(own.aux.to_host(), own, health, on_nonfinite=self._lead.on_nonfinite)
            yield self._told(row, Logged(step=step, split="train", values=values))
            if self._lead.on_nonfinite == "stop" and health.first_bad_step > 0:
                yield self._ended(row, step, "diverged", reports.describe(health, self._losses))

    def _finish(self, step: int) -> Iterator[MemberEvent]:
        yield from self._end_unsound(step)
        if self._saves is not None:
            self._saves.wait()
        yield from self._commits()
        for row in self._running():
            yield self._ended(row, step, "done", "")

    def _ended(self, row: int, step: int, status: Any, reason: str) -> MemberEvent:
        self._status[row] = status
        return self._told(row, Done(step=step, status=status, reason=reason))

    def _running(self) -> list[int]:
        return [row for row, status in enumerate(self._status) if status == "running"]

    def _told(self, row: int, event: Event) -> MemberEvent:
        log = self._logs[row]
        if log is not None:
            writer_lib.append(log, event)
        return MemberEvent(self._pack.members[row], event)


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
