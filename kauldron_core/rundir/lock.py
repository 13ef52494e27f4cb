"""The run lock: keeps two drivers off one run directory."""

from __future__ import annotations

import dataclasses
import logging
import os
import pathlib
import time

from kauldron_core.errors import ConfigError
from kauldron_core.rundir import atomic, leases

TTL_S = 60.0
_logger = logging.getLogger(__name__)


class RunLock:
    """A lease on a run directory with a heartbeat of its own, held inside a `with` block.

    A holder that is known to be dead, or on another host has not given a sign of life for a minute, is taken over.
    A holder that lives on this host is never taken over, however late its heartbeat (it may be suspended). One whose
    heartbeat is dated ahead, by a clock that is wrong, is watched for half a minute: it lives if the heartbeat moves.
    """

    def __init__(self, path: str | os.PathLike[str], *, ttl_s: float = TTL_S):
        """Prepares the lock `path` (a folder inside the run directory); nothing is claimed yet."""
        self.path = pathlib.Path(path)
        self._ttl_s = ttl_s
        self._lease: leases.Lease | None = None

    def acquire(self) -> RunLock:
        """Claims the run directory.

        Raises:
          ConfigError: If another driver holds it; the message names host and process.
        """
        holder = _look(self.path, self._ttl_s)
        if holder is None or not _is_in_use(holder):
            self._lease = leases.Lease.claim(self.path, after=holder, ttl_s=self._ttl_s, note="driver")
        if self._lease is None:
            raise ConfigError(self._message(leases.read_holder(self.path)))
        self._lease.keep_alive()
        atomic.begin_use(self.path.parent)
        return self

    def is_held(self) -> bool:
        """Returns whether this process may go on writing; False once another one has taken over."""
        return self._lease is not None and self._lease.is_held()

    def release(self) -> None:
        """Gives the run directory back; a second call does nothing."""
        if self._lease is not None:
            atomic.end_use(self.path.parent)
            self._lease.release()
            self._lease = None

    def __enter__(self) -> RunLock:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _message(self, holder: leases.Holder | None) -> str:
        run = self.path.parent
        if holder is None:
            return f"{run}: another driver is just starting or ending here. Try again."
        clock = f" The clock of {holder.host} is {holder.ahead_s / 60:.0f} min ahead; set it." if holder.ahead_s else ""
        return (
            f"{run}: in use by another driver ({holder}, last sign of life {max(holder.age_s, 0):.0f} s ago)."
            f" Wait for it, end it, or choose another run directory.{clock}"
        )


def is_locked(path: str | os.PathLike[str], *, ttl_s: float = TTL_S) -> bool:
    """Returns whether a driver that `RunLock` would not take over from holds the lock `path`; may watch it as that."""
    holder = _look(pathlib.Path(path), ttl_s)
    return holder is not None and _is_in_use(holder)


def _look(path: pathlib.Path, ttl_s: float) -> leases.Holder | None:
    """Returns who holds a lock: one that is dated ahead as it is known after it was watched for a while."""
    holder = leases.read_holder(path)
    if holder is not None and holder.ahead_s and _is_in_use(holder):
        return _watched(path, holder, wait_s=ttl_s / 2)
    return holder


def _watched(path: pathlib.Path, holder: leases.Holder, *, wait_s: float) -> leases.Holder | None:
    """Returns the holder after a while: as one that gave the lock back, if its heartbeat has not moved."""
    _logger.warning(
        "%s: the lock of %s is dated %.0f min ahead: a clock is wrong. Looking for %.0f s whether it lives.",
        *(path.parent, holder, holder.ahead_s / 60, wait_s),
    )
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        time.sleep(min(1.0, wait_s / 10))
        again = leases.read_holder(path)
        if again is None or again.generation != holder.generation or again.age_s < holder.age_s:
            return again
        holder = again
    return dataclasses.replace(holder, is_released=True)


def _is_in_use(holder: leases.Holder) -> bool:
    if holder.is_released:
        return False
    is_alive = holder.is_process_alive()
    return holder.age_s <= holder.ttl_s if is_alive is None else is_alive
