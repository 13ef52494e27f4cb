"""The run lock: keeps two drivers off one run directory."""

from __future__ import annotations

import os
import pathlib

from kauldron_core.errors import ConfigError
from kauldron_core.rundir import leases

TTL_S = 60.0


class RunLock:
    """A lease on a run directory with a heartbeat of its own, held inside a `with` block.

    A holder that is known to be dead, or on another host has not given a sign of life for a minute, is taken over.
    A holder that lives on this host is never taken over, however late its heartbeat (it may be suspended).
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
        if holder is None or not _is_in_use(holder):
            self._lease = leases.Lease.claim(self.path, after=holder, ttl_s=self._ttl_s, note="driver")
        if self._lease is None:
            raise ConfigError(self._message(leases.read_holder(self.path)))
        self._lease.keep_alive()
        return self

    def is_held(self) -> bool:
        """Returns whether this process may go on writing; False once another one has taken over."""
        return self._lease is not None and self._lease.is_held()

    def release(self) -> None:
        """Gives the run directory back; a second call does nothing."""
        if self._lease is not None:
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
        return (
            f"{run}: in use by another driver ({holder}, last sign of life {max(holder.age_s, 0):.0f} s ago)."
            " Wait for it, end it, or choose another run directory."
        )


def _is_in_use(holder: leases.Holder) -> bool:
    if holder.is_released:
        return False
    is_alive = holder.is_process_alive()
    return holder.age_s <= holder.ttl_s if is_alive is None else is_alive
