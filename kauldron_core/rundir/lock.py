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
        holder = leases.read_holder(self.path)
        if holder is not None and holder.ahead_s and _is_in_use(holder):
            holder = self._watched(holder)
        if holder is None or not _is_in_use(holder):
            self._lease = leases.Lease.claim(self.path, after=holder, ttl_s=self._ttl_s, note="driver")
        if self._lease is None:
            raise ConfigError(self._message(leases.read_holder(self.path)))
        self._lease.keep_alive()
        atomic.begin_use(self.path.parent)
        return self

    def _watched(self, holder: leases.Holder) -> leases.Holder | None:
        """Returns the holder after a while: as one that gave the lock back, if its heartbeat has not moved."""
        wait_s = self._ttl_s / 2
        _logger.warning(
            "%s: the lock of %s is dated %.0f min ahead: a clock is wrong. Looking for %.0f s whether it lives.",
            *(self.path.parent, holder, holder.ahead_s / 60, wait_s),
        )
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            time.sleep(min(1.0, wait_s / 10))
            again = leases.read_holder(self.path)
            if again is None or again.generation != holder.generation or again.age_s < holder.age_s:
                return again
            holder = again
        return dataclasses.replace(holder, is_released=True)

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


def _is_in_use(holder: leases.Holder) -> bool:
    if holder.is_released:
        return False
    is_alive = holder.is_process_alive()
    return holder.age_s <= holder.ttl_s if is_alive is None else is_alive
