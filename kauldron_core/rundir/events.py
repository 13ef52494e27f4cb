"""Append-only event segments: what a trial reports while it runs, and how others read it.

A process start opens a segment of its own, `ATTEMPT-WRITER.jsonl`, and never touches an older one. The attempt
number is the one whose file it could create exclusively. One line is one event; a last line without a newline is
being written, or was when its writer died, and doesn't count. Steps that are run again after a restart appear in
two segments: a `resumed_from` record tells readers to drop, of the earlier attempts, everything after its step.
"""

from __future__ import annotations

import logging
import os
import pathlib
import re
import time
from typing import Any, NamedTuple

from kauldron_core.rundir import atomic, formats, names, reading

RESUMED_FROM = "resumed_from"
"""Kind of the record after which readers drop later steps of earlier attempts."""

INHERITED = "inherited"
"""Kind of the record that says where a trial's state came from, and how its point changed."""

Event = dict[str, Any]

_SEGMENT = re.compile(r"([0-9]{1,9})-(.+)\.jsonl")
_logger = logging.getLogger(__name__)


class Segment(NamedTuple):
    """One file of events, in reading order."""

    attempt: int
    writer: str
    path: pathlib.Path


class EventWriter:
    """Appends events of one process start.

    Every event is handed to the operating system before `append` returns: killing the process loses none.
    """

    def __init__(self, events_dir: str | os.PathLike[str], writer: str = "train"):
        """Opens a new segment.

        Args:
          events_dir: The trial's `events/`; made if missing.
          writer: Who writes; the attempts of a writer are counted on their own.
        """
        names.check_name(writer, kind="writer")
        folder = atomic.make_folder(events_dir)
        self.attempt, self.path, self._descriptor = _open_segment(folder, writer)
        self._size = 0

    def append(self, kind: str, step: int, **fields: Any) -> None:
        """Appends one event.

        Args:
          kind: `metrics`, `checkpoint`, `evaluated`, `resumed_from`, `done`, ...
          step: The step it belongs to.
          **fields: Whatever else JSON can hold (`split`, `values`); NaN and infinities are kept.
        """
        if self._descriptor < 0:
            raise ValueError(f"{self.path}: the segment is closed")
        event = {"kind": kind, "step": int(step), "time_ms": time.time_ns() // 1_000_000, **fields}
        line = atomic.to_json_text(event, indent=None).encode()
        try:
            atomic.write_all(self._descriptor, line)
        except OSError:
            # A full disk took half a line; without this the next event would be glued to it.
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(line)

    def resumed_from(self, step: int) -> None:
        """Says that this attempt goes on from `step` (-1: from the very beginning)."""
        self.append(RESUMED_FROM, step)

    def sync(self) -> None:
        """Makes what was appended survive a power cut."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Syncs and closes the segment; a second call does nothing."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EventFollower:
    """Reads events as they are written, each complete line once."""

    def __init__(self, events_dir: str | os.PathLike[str]):
        self._folder = pathlib.Path(events_dir)
        self._offsets: dict[pathlib.Path, int] = {}
        self._rewinds = _Rewinds()

    def poll(self) -> list[Event]:
        """Returns the events written since the last call, rewinds among them as `resumed_from` records.

        After such a record the steps above its `step` come again. What a replaced process still writes after its
        successor has rewound is dropped here.
        """
        events: list[Event] = []
        for segment in list_segments(self._folder):
            events.extend(event for event in self._read_new(segment) if self._rewinds.keeps(segment, event))
        return events

    def _read_new(self, segment: Segment) -> list[Event]:
        offset = self._offsets.get(segment.path, 0)
        if segment.path.stat().st_size == offset:
            return []
        lines, end = _complete_lines(segment.path, offset)
        self._offsets[segment.path] = end
        return _parse(segment.path, lines)


def read_events(events_dir: str | os.PathLike[str]) -> list[Event]:
    """Events of a trial, every step once: replayed parts and the `resumed_from` records are left out."""
    found: list[tuple[Segment, Event]] = []
    for segment in list_segments(events_dir):
        lines, _ = _complete_lines(segment.path, 0)
        for event in _parse(segment.path, lines):
            if event["kind"] == RESUMED_FROM:
                found = [kept for kept in found if kept[0].writer != segment.writer or kept[1]["step"] <= event["step"]]
            else:
                found.append((segment, event))
    return [event for _, event in found]


def measured(event: Event) -> tuple[str, dict[str, float]]:
    """Name (`train` or an evaluator) and metrics of an event; None for an event without metrics."""
    source = event.get("split") or event.get("name") or event["kind"]
    values = event.get("values") or {}
    return source, {name: value for name, value in values.items() if formats.is_number(value)}


def list_segments(events_dir: str | os.PathLike[str]) -> list[Segment]:
    """Returns the segments of a trial in reading order; none if it has not begun."""
    try:
        found = os.listdir(events_dir)
    except (FileNotFoundError, NotADirectoryError):
        return []
    folder = pathlib.Path(events_dir)
    matches = [(match, name) for name in found if (match := _SEGMENT.fullmatch(name)) and (folder / name).is_file()]
    return sorted(Segment(int(match[1]), match[2], folder / name) for match, name in matches)


class _Rewinds:
    """Remembers, per writer, from which attempt on a step counts."""

    def __init__(self):
        self._seen: dict[str, list[tuple[int, int]]] = {}

    def keeps(self, segment: Segment, event: Event) -> bool:
        rewinds = self._seen.setdefault(segment.writer, [])
        if event["kind"] == RESUMED_FROM:
            rewinds.append((segment.attempt, event["step"]))
            return True
        return all(attempt <= segment.attempt or event["step"] <= step for attempt, step in rewinds)


def _open_segment(folder: pathlib.Path, writer: str) -> tuple[int, pathlib.Path, int]:
    attempt = max((segment.attempt for segment in list_segments(folder) if segment.writer == writer), default=0)
    while True:
        attempt += 1
        path = folder / f"{attempt:04d}-{writer}.jsonl"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        except FileExistsError:
            continue
        atomic.sync_folder(folder)
        return attempt, path, descriptor


def _complete_lines(path: pathlib.Path, offset: int) -> tuple[list[bytes], int]:
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    end = data.rfind(b"\n") + 1
    return data[:end].splitlines(), offset + end


def _parse(path: pathlib.Path, lines: list[bytes]) -> list[Event]:
    events: list[Event] = []
    for line in lines:
        try:
            events.append(reading.parse(line, path, formats.EVENT))
        except reading.DamagedFile:
            # A power cut can leave a block of zeros; one lost line must not hide the others.
            _logger.warning("%s: a damaged line is ignored: %.80r", path, line)
    return events
