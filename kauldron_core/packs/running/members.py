"""The trials of a pack: who still trains, and what each has told."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from kauldron_core import rundir
from kauldron_core.train.loop import writer as writer_lib
from kauldron_core.train.loop.events import Done, Evaluated, Event, Logged, Saved
from kauldron_core.train.loop.writer import EventLog
from kauldron_core.train.trainer import Trainer

RUNNING = "running"


@dataclasses.dataclass(frozen=True)
class Inherited:
    """A trial goes on with what another one has learned, and with other numbers.

    Attributes:
      step: Step of the state that it has taken over.
      donor: Name of the other trial, that of its folder; where there is none, its place in the list of configs.
      changes: Value before and after of each number that may change, by path.
    """

    step: int
    donor: str
    changes: dict[str, list[float]]


@dataclasses.dataclass(frozen=True)
class MemberEvent:
    """An event of one trial of a pack.

    Attributes:
      member: Place of the trial in the list of configs.
      event: What happened.
    """

    member: int
    event: Event | Inherited


class Members:
    """The trials of a pack, by their index in it.

    Args:
      places: Place of each in the list of configs.
      trainers: The trials.
    """

    def __init__(self, places: Sequence[int], trainers: Sequence[Trainer]):
        self.trainers = trainers
        self._places = places
        self._ends: dict[int, Done] = {}
        self._logs: dict[int, EventLog | None] = {}
        self._began_at: int | None = None

    @property
    def running(self) -> list[int]:
        """Those that still train, in order."""
        return [index for index in range(len(self.trainers)) if index not in self._ends]

    @property
    def are_running(self) -> bool:
        """Whether any still trains."""
        return len(self._ends) < len(self.trainers)

    @property
    def statuses(self) -> tuple[str, ...]:
        """How each stands."""
        return tuple(
            self._ends[index].status if index in self._ends else RUNNING for index in range(len(self.trainers))
        )

    def placed_at(self, places: Any) -> list[int]:
        """Returns those running ones whose place in the list of configs is in a container."""
        return [index for index in self.running if self._places[index] in places]

    def name_of(self, index: int) -> str:
        """Returns what one of them is called."""
        workdir = self.trainers[index].workdir
        return str(self._places[index]) if workdir is None else pathlib.Path(workdir).name

    def tell(self, index: int, event: Event | Inherited) -> MemberEvent:
        """Records an event of one of them."""
        log, keeper = self._log(index), self.trainers[index].checkpointer
        if isinstance(event, Inherited):
            if log is not None:
                log.append(rundir.INHERITED, event.step, donor=event.donor, changes=event.changes)
        elif log is not None:
            writer_lib.append(log, event)
        if keeper is not None and isinstance(event, Logged | Evaluated):
            keeper.observe(event.step, event.name if isinstance(event, Evaluated) else event.split, event.values)
        return MemberEvent(self._places[index], event)

    def end(self, index: int, done: Done) -> MemberEvent:
        """Records that one of them has ended."""
        self._ends[index] = done
        is_old = done.step == self._began_at and self.has_told(index, "done", step=done.step, status=done.status)
        return MemberEvent(self._places[index], done) if is_old else self.tell(index, done)

    def ended(self) -> dict[str, Any]:
        """Returns who has ended and how, as JSON can carry it."""
        return {str(index): dataclasses.asdict(done) for index, done in self._ends.items()}

    def begin(
        self, step: int | None, ended: dict[str, Any], *, left_aside: Sequence[str] = ()
    ) -> Iterator[MemberEvent]:
        """Goes on from a checkpoint; tells of those that had ended before it how they did.

        Args:
          step: Its step, None where there is none.
          ended: What `ended` returned then.
          left_aside: In words, which checkpoints are not gone on from.
        """
        self._began_at = step
        aside = {"left_aside": list(left_aside)} if left_aside else {}
        yield from self.tell_ended(ended)
        for index in self.running:
            log = self._log(index)
            if log is not None and (step is not None or log.attempt > 1):
                # -1: what an earlier attempt did before its first checkpoint happens again, step 0 included.
                log.append(rundir.RESUMED_FROM, -1 if step is None else step, **aside)
            if (
                step is not None
                and self._has_checkpoint(index, step)
                and not self.has_told(index, "checkpoint", step=step)
            ):
                yield self.tell(index, Saved(step))

    def tell_ended(self, ended: dict[str, Any]) -> Iterator[MemberEvent]:
        """Tells of those that have ended how they did; of others it is not known how they stand.

        Args:
          ended: What `ended` returned then.
        """
        self._ends = {int(index): Done(**done) for index, done in ended.items()}
        for index, done in self._ends.items():
            if self.has_told(index, "done", step=done.step, status=done.status):
                yield MemberEvent(self._places[index], done)
            else:  # A kill came between the checkpoint and this.
                yield self.tell(index, done)

    def has_told(self, index: int, kind: str, **fields: Any) -> bool:
        """Returns whether such a record of one of them is there; without a folder there is none to be missed."""
        workdir = self.trainers[index].workdir
        if workdir is None:
            return True
        records = rundir.read_events(pathlib.Path(workdir) / "events")
        wanted = {"kind": kind, **fields}
        return any(all(one.get(key) == value for key, value in wanted.items()) for one in records)

    def close(self) -> None:
        """Ends what is written."""
        for log in self._logs.values():
            if log is not None:
                log.close()

    def _log(self, index: int) -> EventLog | None:
        # One that had ended before needs none, and gets no empty segment.
        if index not in self._logs:
            self._logs[index] = self.trainers[index].writer.open()
        return self._logs[index]

    def _has_checkpoint(self, index: int, step: int) -> bool:
        keeper = self.trainers[index].checkpointer
        return keeper is not None and keeper.workdir is not None and step in keeper.all_steps
