"""Where events go, besides to whoever drains `iter_train`."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any, Protocol

import jax

from kauldron_core import rundir
from kauldron_core.train.loop import events


class EventLog(Protocol):
    """An open destination of events.

    Attributes:
      attempt: How often it was opened for this run, counted from 1.
    """

    attempt: int

    def append(self, kind: str, step: int, **fields: Any) -> None:
        """Adds one event."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class Writer(Protocol):
    """A destination as a config describes it."""

    def open(self) -> EventLog | None:
        """Returns the open destination; None writes nothing."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class EventsWriter:
    """Appends to `workdir/events`; writes nothing where there is no workdir.

    Attributes:
      workdir: The folder of the experiment; the trainer's where unset.
    """

    workdir: str | os.PathLike[str] | None = None

    def __post_init__(self):
        if self.workdir is not None:
            rundir.refuse_address(self.workdir, at="writer.workdir")

    def open(self) -> EventLog | None:
        # Of several hosts, which all train the same, one tells.
        if self.workdir is None or jax.process_index() > 0:
            return None
        return rundir.EventWriter(pathlib.Path(self.workdir) / "events")


@dataclasses.dataclass(frozen=True)
class NoWriter:
    """Writes nothing."""

    def open(self) -> EventLog | None:
        return None


def append(log: EventLog, event: events.Event) -> None:
    """Adds `event` to `log`."""
    match event:
        case events.Logged(step, split, values):
            log.append("metrics", step, split=split, values=values)
        case events.Summarized(step, split, _, files):
            log.append("summaries", step, split=split, files=list(files))
        case events.Evaluated(step, name, values, num_examples, seconds):
            log.append("evaluated", step, split=name, values=values, num_examples=num_examples, seconds=seconds)
        case events.Saved(step):
            log.append("checkpoint", step)
        case events.Done(step, status, reason):
            log.append("done", step, status=status, reason=reason)
