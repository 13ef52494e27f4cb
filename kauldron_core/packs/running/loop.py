"""The loop over a pack: all its trials, call after call of one program."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core import konfig, rundir
from kauldron_core.evals import EvaluationStopped
from kauldron_core.forward import Health, TrainState
from kauldron_core.losses import named_losses
from kauldron_core.packs.planning.sizes import bytes_of, memory
from kauldron_core.packs.planning.tracing import build, stacked_arguments, tables_among
from kauldron_core.packs.rules.rule import Decision, Rule
from kauldron_core.packs.running import placement
from kauldron_core.packs.running.checkpoints import GHOST, StackedCheckpoints, Standing
from kauldron_core.packs.running.data import open_data
from kauldron_core.packs.running.division import Origin
from kauldron_core.packs.running.evaluation import Heritage, evaluate
from kauldron_core.packs.running.members import MemberEvent, Members
from kauldron_core.packs.running.points import Points
from kauldron_core.packs.running.programs import PackedPrograms
from kauldron_core.train.loop import reports
from kauldron_core.train.loop.events import Done, Evaluated, Logged, Saved
from kauldron_core.train.step.layout import zeros_like
from kauldron_core.train.step.program import Outputs, StepReport
from kauldron_core.train.step.source import step_source
from kauldron_core.train.trainer import Trainer


class PackLoop:
    """A pack while it trains.

    Args:
      members: Its trials.
      points: Their numbers.
      saves: Its checkpoints; None saves none.
      rule: What compares the trials while they train, if anything does.
      origin: Where it begins if it has no checkpoint of its own.
    """

    def __init__(
        self,
        members: Members,
        points: Points,
        *,
        saves: StackedCheckpoints | None,
        rule: Rule | None,
        origin: Origin,
    ):
        self._members = members
        self._points = points
        self._saves = saves
        self._rule = rule
        self._origin = origin
        self._lead: Trainer = members.trainers[0]
        self.last_step = self._lead.last_step
        self._losses = sorted(dict(named_losses(self._lead.train_losses)))
        self._source = step_source(points.first_config, others=points.arguments)
        self._tables = tables_among(self._source, points.arguments)
        self._heritage = Heritage.of(points.first_config, points.arguments, self._tables)
        self._data = open_data([trainer.train_ds for trainer in members.trainers])
        self._evaluators = [dict(trainer.evals) for trainer in members.trainers]
        self._known: dict[tuple[int, int], PackedPrograms] = {}
        self._trial_bytes = 0
        self._held: tuple[int, StepReport] | None = None
        self._evaluated: set[str] = set()
        self._scores: dict[int, float] = {}
        self._states: Any = None

    def run(self, stop: threading.Event, asked: Callable[[], Container[int]]) -> Iterator[MemberEvent]:
        """Trains; yields events."""
        step = yield from self._restore_or_init()
        is_cut = yield from self._evaluate(step, stop)
        while step < self.last_step and self._members.are_running and not is_cut:
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
            is_cut = is_cut or (stop.is_set() and step < self.last_step)
            places = asked()
            leaving = self._members.placed_at(places) if places else []
            if leaving or is_cut or self._is_saved_at(step) or self._is_decided_at(step):
                yield from self._flush()
                yield from self._end_call(step, leaving, is_cut)
            yield from self._commits()
        yield from self._flush()
        yield from self._finish(step, is_cut)

    def result(self) -> tuple[list[int], TrainState]:
        """Returns the trials whose states are still there, and these, with a first dimension for the trial."""
        rows = self._indices
        return rows, jax.tree.map(lambda leaf: leaf[: len(rows)], self._states)

    def close(self) -> None:
        """Ends what is open."""
        with contextlib.ExitStack() as parts:
            for part in (self._data, self._members, *([] if self._saves is None else [self._saves])):
                parts.callback(part.close)

    def _advance(self, step: int) -> tuple[int, StepReport | None]:
        """Makes the call after `step`; returns the step it ends at, and its report."""
        size = self._lead.steps_per_call
        end = self._lead.end_of_call(step, last_step=self.last_step, is_cut_at=self._is_cut_at)
        outputs = self._lead.outputs_at(end, last_step=self.last_step)
        if self._is_decided_at(end):
            outputs = Outputs(losses=True, metrics=True, summaries=outputs.summaries)
        batch = self._data.next_batch() if size == 1 else self._data.take(end - step, size=size)
        batch = self._placement.put_batch(batch, has_rows=not self._data.is_shared, is_stack=size > 1)
        self._evaluated.clear()
        call = self._programs.call(outputs, size=size)
        counts = () if size == 1 else (end - step,)
        self._states, report = call(self._numbers, self._states, batch, *counts)
        return end, report

    def _restore_or_init(self) -> Generator[MemberEvent, None, int]:
        """Makes the states, or reads those of the last checkpoint; returns their step."""
        batch = zeros_like(self._lead.train_ds.element_spec)
        self._arrange(range(len(self._members.trainers)))
        spec = jax.eval_shape(self._programs.init, self._numbers, batch)
        self._trial_bytes = bytes_of(_resized(spec, 1))
        found = None if self._saves is None else self._saves.load(lambda size: _resized(spec, size))
        left_aside = [] if self._saves is None else self._saves.left_aside
        found = found or self._origin(lambda size: _resized(spec, size))
        if found is None:
            self._arrange(self._indices)
            yield from self._members.begin(None, {}, left_aside=left_aside)
            self._states = self._programs.init(self._numbers, batch)
            return 0
        step, states, standing = found
        yield from self._members.begin(step, standing.ended, left_aside=left_aside)
        self._points.restore(standing.points)
        self._take_evaluators(self._points.now)
        self._scores = {int(index): score for index, score in standing.scores.items()}
        self._evaluated = set(standing.evaluated)
        self._arrange(standing.going_on)
        rows = [standing.rows.index(index) for index in self._sources]
        self._states = self._placement.put_rows(jax.tree.map(lambda leaf: leaf[np.asarray(rows)], states))
        iterators = standing.iterators if len(standing.iterators) == 1 else [standing.iterators[row] for row in rows]
        # Those that are left may all read alike.
        self._data.set_state(iterators[:1] if self._data.is_shared else iterators)
        self._write_points()
        for index, event in self._points.inherited(step):
            # A kill came between the checkpoint and this.
            if not self._members.has_told(index, rundir.INHERITED, step=step):
                yield self._members.tell(index, event)
        return step

    def _arrange(self, indices: Sequence[int]) -> None:
        """Gives each of these trials a row; states are not moved."""
        self._indices = list(indices)
        batch_sizes = {leaf.shape[0] for leaf in jax.tree.leaves(self._lead.train_ds.element_spec) if leaf.shape}
        self._placement = placement.choose(
            len(self._indices),
            num_devices=jax.device_count(),
            batch_size=math.gcd(*batch_sizes),
            trial_bytes=self._trial_bytes,
            memory_bytes=memory()[0] if self._trial_bytes else None,
        )
        num_ghosts = self._placement.num_rows - len(self._indices)
        self._rows = [*self._indices, *[GHOST] * num_ghosts]
        self._sources = [*self._indices, *[self._indices[-1]] * num_ghosts]
        self._data.keep(self._sources)
        self._take_numbers()
        self._programs = self._programs_on(self._placement)

    def _take_numbers(self) -> None:
        values = stacked_arguments([self._points.values(index) for index in self._sources])
        self._numbers = self._placement.put_rows(values)

    def _take_evaluators(self, indices: Iterable[int]) -> None:
        """Takes evaluators with the numbers of these trials as they are by now."""
        if any(self._heritage.reads(path) for path in self._points.varying):
            for index in indices:
                self._evaluators[index] = dict(konfig.resolve(self._points.config(index)).evals)

    def _programs_on(self, grid: placement.Placement) -> PackedPrograms:
        key = grid.trial_devices, grid.batch_devices
        if key not in self._known:
            self._known[key] = PackedPrograms(
                lambda numbers: build(self._source, numbers, tables=self._tables),
                self._points.arguments,
                has_own_batches=not self._data.is_shared,
                placement=grid,
            )
        return self._known[key]

    def _is_cut_at(self, step: int) -> bool:
        return self._should_save(step) or self._is_evaluated_at(step) or self._is_decided_at(step)

    def _is_decided_at(self, step: int) -> bool:
        return self._rule is not None and step < self.last_step and self._rule.is_due(step)

    def _is_saved_at(self, step: int) -> bool:
        is_due = self._saves is not None and (step == self.last_step or self._saves.is_due(step))
        return is_due or self._should_save(step)

    def _should_save(self, step: int) -> bool:
        """Returns whether the number of the step makes a checkpoint due."""
        keeper = self._lead.checkpointer
        return self._saves is not None and keeper is not None and keeper.should_save(step)

    def _is_evaluated_at(self, step: int) -> bool:
        return any(evaluator.run.should_run(step, step >= self.last_step) for evaluator in self._lead.inline_evals)

    def _end_call(self, step: int, leaving: Sequence[int], is_cut: bool) -> Iterator[MemberEvent]:
        """Does what is to be done between two calls: decides, saves, and lets go who leaves."""
        yield from self._end_unsound(step)
        ends = {
            index: Done(step, "stopped", "stopped on request") for index in leaving if index in self._members.running
        }
        decision = self._decide(step, ends) if self._is_decided_at(step) else Decision()
        ends |= {index: Done(step, "pruned", reason) for index, reason in decision.pruned.items()}
        going_on = self._indices
        if decision.pruned:
            going_on = [index for index in self._members.running if index not in ends]
        changed = {*ends, *decision.inherits}
        # Where only some leave, the others have no checkpoint that they would not have alone.
        pointed = self._members.running if is_cut or self._is_saved_at(step) else sorted(changed)
        if pointed:
            self._save(step, pointed, ends, going_on)
        if changed and self._saves is not None:
            self._saves.wait()
            yield from self._commits()
        for index, done in ends.items():
            yield self._members.end(index, done)
        if decision.inherits:
            self._write_points()
            for index, event in self._points.inherited(step):
                yield self._members.tell(index, event)
        if decision.pruned:
            rows = [self._rows.index(index) for index in going_on]
            self._arrange(going_on)
            self._move_states(rows)

    def _decide(self, step: int, ends: Mapping[int, Done]) -> Decision:
        """Asks the rule; what trials inherit they have afterwards."""
        running = [index for index in self._members.running if index not in ends]
        if self._rule is None or not running:
            return Decision()
        scores = {index: self._scores.get(index, math.nan) for index in running}
        decision = self._rule.decide(step, scores, self._points.now, self._points.first)
        donors = {index: heir.donor for index, heir in decision.inherits.items()}
        if donors:
            rows = [self._indices.index(donors.get(index, index)) for index in self._indices]
            for index, heir in decision.inherits.items():
                self._points.change(index, heir.point, donor=self._members.name_of(heir.donor), step=step)
            self._take_evaluators(decision.inherits)
            self._take_numbers()
            self._move_states(rows)
        return decision

    def _move_states(self, rows: Sequence[int]) -> None:
        """Gives each trial the state in one of the rows."""
        rows = [*rows, *[rows[-1]] * (len(self._sources) - len(rows))]
        self._states = self._placement.put_rows(jax.tree.map(lambda leaf: leaf[np.asarray(rows)], self._states))

    def _save(self, step: int, pointed: Sequence[int], ends: Mapping[int, Done], going_on: Sequence[int]) -> None:
        """Starts to save, as those who end have ended."""
        if self._saves is None or not self._members.running:
            return
        ended = self._members.ended() | {str(index): dataclasses.asdict(done) for index, done in ends.items()}
        standing = Standing(
            rows=tuple(self._rows),
            going_on=tuple(going_on),
            iterators=self._data.get_state(),
            ended=ended,
            pointed=tuple(pointed),
            evaluated=tuple(sorted(self._evaluated)),
            scores={str(index): score for index, score in self._scores.items()},
            points=self._points.to_json(),
        )
        self._saves.save(self._states, standing, step=step)

    def _write_points(self) -> None:
        trainers = self._members.trainers
        self._points.write({index: trainers[index].workdir for index in self._members.running})

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

    def _evaluate(self, step: int, stop: threading.Event) -> Generator[MemberEvent, None, bool]:
        """Runs the evaluators that are due and have not run at this step; returns whether it was asked to stop."""
        # A decision must not depend on when somebody wanted to stop.
        asked = None if self._is_decided_at(step) else stop
        numbers = dict(zip(self._points.arguments, self._numbers, strict=True))
        values = [numbers[path] for path in self._heritage.names]
        for name, lead in self._lead.evals.items():
            is_due = not lead.run.is_standalone and lead.run.should_run(step, step >= self.last_step)
            running = self._running()
            if not is_due or name in self._evaluated or not running:
                continue
            own = [(row, self._evaluators[index][name]) for row, index in running]
            try:
                results = evaluate(lead, own, self._states, self._heritage, values, stop=asked)
            except EvaluationStopped:
                return True
            for (_, index), result in zip(running, results, strict=True):
                self._score(index, name, result.values)
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
            own = jax.tree.map(lambda leaf, row=row: leaf[row], report)
            health = Health.of(own.health)
            values = reports.values_of(own.aux.to_host(), own, health, on_nonfinite=self._lead.on_nonfinite)
            self._score(index, "train", values)
            yield self._members.tell(index, Logged(step=step, split="train", values=values))
            if self._lead.on_nonfinite == "stop" and health.first_bad_step > 0:
                yield self._ended(index, step, "diverged", reports.describe(health, self._losses))

    def _score(self, index: int, source: str, values: Mapping[str, float]) -> None:
        """Keeps what the rule compares."""
        if self._rule is not None and self._rule.source == source:
            self._scores[index] = self._rule.score(values)

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


def _resized(spec: Any, size: int) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype), spec)
