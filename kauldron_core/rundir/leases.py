"""Leases: who works on what, across processes and hosts, with nothing but files.

A lease is a folder of numbered generations; the highest one is in force. To claim, a process creates the next
number exclusively, which one process alone can do. It never replaces nor removes the file in force, so there is no
moment in which two claimants of a stale lease could both win, nor in which a holder that woke up late could
remove its successor's file: it only ever touches the one that it created itself, through an open descriptor.

The heartbeat is the file's modification time, compared with the file system's own clock, not with this host's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import threading
import time
from typing import Any

from kauldron_core.rundir import atomic, formats, processes, reading, removal

DEFAULT_TTL_S = 60.0
_LONGEST_TTL_S = 3_600.0  # What a file may ask for; nobody here asks for more.
_KEPT_GENERATIONS = 8  # Old ones stay a while: a slow claimant then meets "exists" and not a free number.
_GENERATION = re.compile(r"[0-9]{8}")
_ahead: dict[str, tuple[float, float]] = {}
"""Heartbeats from the future: how they are dated, and since when (by this process's clock) they stand so."""


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who holds a lease, as its file says it.

    Attributes:
      generation: Number of the claim.
      host: Name of the holder's host, for people.
      machine: Identity of the running system and its process numbering; equal means that `pid` can be looked up.
      pid: Process number of the holder.
      process_start: When that process started, as its system counts; tells a reused number.
      ttl_s: For how long the lease stands without a heartbeat.
      age_s: Seconds since the last heartbeat; of one that is dated ahead, seconds for which this process has seen it
        stand still.
      ahead_s: How far it is dated ahead of the file system's clock; 0 unless that is more than `ttl_s`.
      is_released: Whether the holder gave it back.
      note: What it is used for.
    """

    generation: int
    host: str
    machine: str
    pid: int
    process_start: str
    ttl_s: float
    age_s: float
    is_released: bool
    note: str
    ahead_s: float = 0.0

    def is_live(self) -> bool:
        """Returns whether the lease stands: not given back, not run out, its process not known to be dead."""
        return not self.is_released and self.age_s <= self.ttl_s and self.is_process_alive() is not False

    def is_process_alive(self) -> bool | None:
        """Returns whether the holding process exists, or None when it can't be seen from here."""
        if self.machine != processes.machine_id():
            return None
        return processes.exists(self.pid) and processes.process_start(self.pid) == self.process_start

    def __str__(self) -> str:
        return f"{self.host} pid {self.pid}"


class Lease:
    """A claim that this process holds until it releases it, dies or stops beating for `ttl_s` seconds."""

    def __init__(self, folder: pathlib.Path, generation: int, descriptor: int, *, ttl_s: float):
        self.path = folder
        self.generation = generation
        self._descriptor = descriptor
        self._ttl_s = ttl_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def acquire(cls, path: str | os.PathLike[str], ttl_s: float = DEFAULT_TTL_S, *, note: str = "") -> Lease | None:
        """Claims `path` and returns the lease, or None while another holder is live.

        Args:
          path: The lease's folder; made if missing.
          ttl_s: Seconds for which it stands without a heartbeat.
          note: What it is used for; shown to whoever finds it taken.
        """
        holder = read_holder(path)
        if holder is not None and holder.is_live():
            return None
        return cls.claim(path, after=holder, ttl_s=ttl_s, note=note)

    @classmethod
    def claim(
        cls, path: str | os.PathLike[str], *, after: Holder | None, ttl_s: float = DEFAULT_TTL_S, note: str = ""
    ) -> Lease | None:
        """Claims the generation that follows the holder `after`, which the caller judged gone; None when too late."""
        folder = pathlib.Path(path)
        generation = 1 if after is None else after.generation + 1
        descriptor = _create_generation(folder, generation, _identity(ttl_s, note))
        if descriptor is None:
            return None
        lease = cls(folder, generation, descriptor, ttl_s=ttl_s)
        if not lease.is_held():
            # The number was free because the folder had been cleaned since it was read; the later claim counts.
            lease.release()
            return None
        _forget_generations(folder, below=generation - _KEPT_GENERATIONS)
        return lease

    @staticmethod
    def is_live(path: str | os.PathLike[str]) -> bool:
        """Returns whether somebody holds the lease `path`."""
        holder = read_holder(path)
        return holder is not None and holder.is_live()

    def is_held(self) -> bool:
        """Returns whether this claim is still the one in force."""
        return self._descriptor >= 0 and _latest_generation(self.path) == self.generation

    def heartbeat(self) -> bool:
        """Tells the others that this process lives; returns False when the lease was lost to another meanwhile."""
        if self._descriptor >= 0:
            os.utime(self._descriptor)
        return self.is_held()

    def keep_alive(self) -> Lease:
        """Beats in a thread of its own until the lease is released or lost, and returns the lease."""
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()
        return self

    def _beat(self) -> None:
        while not self._stop.wait(self._ttl_s / 6) and self.heartbeat():
            pass

    def release(self, *, forget: bool = False) -> None:
        """Gives the lease back; a second call does nothing.

        Args:
          forget: Remove the lease's folder too. Only for work whose result is recorded and which is looked up again
            by everybody who claims: a claimant that read the folder before could claim a number of its own.
        """
        if self._descriptor < 0:
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if forget and self.is_held():
            with contextlib.suppress(OSError):
                removal.remove(self.path, inside=self.path.parent)
        os.utime(self._descriptor, (0, 0))
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def read_holder(path: str | os.PathLike[str]) -> Holder | None:
    """Returns whose claim on the lease `path` is the last one, live or not; None if there never was one."""
    folder = pathlib.Path(path)
    generation = _latest_generation(folder)
    if generation is None:
        return None
    file = folder / _file_name(generation)
    try:
        beaten_at_s = file.stat().st_mtime
        identity = _read(file)
    except FileNotFoundError:
        return read_holder(path)  # Cleaned since it was listed.
    age_s, ahead_s = _file_system_now_s(folder) - beaten_at_s, 0.0
    if -age_s > identity["ttl_s"]:
        age_s, ahead_s = _stood_still_s(file, beaten_at_s), -age_s
    is_released = beaten_at_s == 0
    return Holder(generation=generation, age_s=age_s, is_released=is_released, ahead_s=ahead_s, **identity)


def _stood_still_s(file: pathlib.Path, beaten_at_s: float) -> float:
    """Returns for how long this process has seen the same heartbeat, which a clock that is ahead has dated."""
    seen, since_s = _ahead.get(os.fspath(file), (0.0, 0.0))
    if seen != beaten_at_s:
        since_s = time.monotonic()
        _ahead[os.fspath(file)] = beaten_at_s, since_s
    return time.monotonic() - since_s


def _identity(ttl_s: float, note: str) -> dict[str, Any]:
    return {
        "host": os.uname().nodename,
        "machine": processes.machine_id(),
        "pid": os.getpid(),
        "process_start": processes.process_start(os.getpid()),
        "ttl_s": ttl_s,
        "note": note,
    }


def _read(file: pathlib.Path) -> dict[str, Any]:
    try:
        found = reading.read_json(file, formats.LEASE)
        texts = {key: found[key] for key in ("host", "machine", "process_start", "note")}
        return {**texts, "pid": found["pid"], "ttl_s": min(float(found["ttl_s"]), _LONGEST_TTL_S)}
    except reading.DamagedFile:
        # A power cut leaves this; such a claim runs out by its age.
        texts = {"host": "an unknown host", "machine": "", "process_start": "", "note": ""}
        return {**texts, "pid": -1, "ttl_s": DEFAULT_TTL_S}


def _create_generation(folder: pathlib.Path, generation: int, identity: dict[str, Any]) -> int | None:
    """Returns an open descriptor of the new file, or None when somebody else has created it."""
    atomic.make_folder(folder)
    temporary = atomic.temporary_path(folder)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            atomic.write_all(descriptor, atomic.to_json_text(identity).encode())
            os.fsync(descriptor)
            if atomic.link_exclusive(temporary, folder / _file_name(generation)):
                kept, descriptor = descriptor, -1
                return kept
            return None
        finally:
            if descriptor >= 0:
                os.close(descriptor)
            temporary.unlink(missing_ok=True)
    except FileNotFoundError:
        return None  # Another holder is done with the work and has removed the folder.


def _file_name(generation: int) -> str:
    return f"{generation:08d}"


def _generations(folder: pathlib.Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if _GENERATION.fullmatch(name))
    except FileNotFoundError:
        return []


def _latest_generation(folder: pathlib.Path) -> int | None:
    return max(_generations(folder), default=None)


def _forget_generations(folder: pathlib.Path, *, below: int) -> None:
    for generation in _generations(folder):
        if generation < below:
            (folder / _file_name(generation)).unlink(missing_ok=True)


def _file_system_now_s(folder: pathlib.Path) -> float:
    """Returns the time that a file written now would carry; hosts of one file server agree on it."""
    path = atomic.temporary_path(folder)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError:
        return time.time()  # A reader without write access, or the folder is gone.
    try:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(path)
