"""Where evaluations come from, and how they are made in this process."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from evaluators.checkpoint_evaluator import CheckpointEvaluator
from evaluators.shards import check_number
from kauldron_core import rundir
from kauldron_core.rundir import Record, TrialDir


@dataclasses.dataclass(frozen=True)
class Task:
    """One evaluation to make: what `CheckpointEvaluator.evaluate` takes, in this process or in another."""

    trial: TrialDir
    name: str
    step: int


class Source(Protocol):
    """Where evaluations come from, for whoever makes them: a plan, or a run that is followed.

    Attributes:
      is_strict: Whether an evaluation that can't begin (a config that can't be built) ends it all. Else it is recorded.
    """

    is_strict: ClassVar[bool]

    @property
    def missing(self) -> Sequence[Record]:
        """Records of what can't be evaluated, which are told first."""
        ...

    def options(self) -> dict[str, Any]:
        """Returns the arguments of `CheckpointEvaluator.evaluate` that all tasks share."""
        ...

    def resources(self) -> dict[str, float]:
        """Returns what the evaluators say that a process of theirs must own."""
        ...

    def look(self) -> tuple[list[Task], bool]:
        """Returns what there is to do, first things first, and whether nothing will follow."""
        ...

    def standing(self, task: Task) -> Record | None:
        """Returns the record that makes a task needless, if there is one."""
        ...

    def arrange(self, records: Mapping[Task, Record]) -> list[Record]:
        """Returns the records in the order in which they are shown."""
        ...


def evaluate_source(
    source: Source,
    *,
    shards: int = 1,
    poll_s: float = 1.0,
    trust: Sequence[str] = (),
    on_record: Callable[[Record], None] | None = None,
) -> list[Record]:
    """Makes the evaluations of `source` in this process and returns the records, each with the key `trial`.

    Args:
      source: What to evaluate.
      shards: Evaluate so many disjoint shares of the data, one after the other, and merge their states.
      poll_s: Time between two looks while there is nothing to do.
      trust: Packages whose names configs may call.
      on_record: Called with each record as it is there.

    Raises:
      ConfigError: If an evaluation can't begin, and `source.is_strict`.
      RunFailed: If a followed run had no news for too long.
    """
    check_number(shards)
    worker = CheckpointEvaluator(trust=trust)
    records: dict[Task, Record] = {}
    for record in source.missing:
        _tell(on_record, record)
    while True:
        tasks, is_all = source.look()
        todo = [task for task in tasks if task not in records]
        if is_all and shards == 1:
            for task, record in _evaluated_packs(worker, source, todo):
                records[task] = {"trial": task.trial.name, **record}
                _tell(on_record, records[task])
            todo = [task for task in todo if task not in records]
        for task in todo if is_all else todo[:1]:  # What comes meanwhile may go first.
            if source.is_strict:
                worker.check(task.trial, task.name, changes=source.options().get("changes"), shards=shards)
            record = worker.evaluate(task.trial, task.name, task.step, shards=shards, **source.options())
            records[task] = {"trial": task.trial.name, **record}
            _tell(on_record, records[task])
        if is_all:
            for trial in {task.trial for task in records}:
                rundir.remove_leftovers(trial)
            return source.arrange(records)
        if not todo:
            time.sleep(poll_s)


def _evaluated_packs(
    worker: CheckpointEvaluator, source: Source, tasks: Sequence[Task]
) -> Iterator[tuple[Task, Record]]:
    """Evaluates those that concern trials of a pack, all trials of one together."""
    packs: dict[tuple[str | None, str], list[Task]] = {}
    for task in tasks:
        if source.standing(task) is None:
            packs.setdefault((rundir.pack_of(task.trial.checkpoints, task.step), task.name), []).append(task)
    for (pack, name), own in packs.items():
        if pack is not None and len(own) > 1:
            if source.is_strict:
                worker.check(own[0].trial, name, changes=source.options().get("changes"))
            found = worker.evaluate_pack([task.trial for task in own], name, own[0].step, **source.options())
            yield from zip(own, found, strict=True)


def _tell(listener: Callable[[Record], None] | None, record: Record) -> None:
    if listener is not None:
        listener(record)
