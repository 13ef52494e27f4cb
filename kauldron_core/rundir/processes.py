"""Which processes live: what a claim, or a file that was never finished, says about who made it."""

from __future__ import annotations

import functools
import os
import pathlib


@functools.cache
def machine_id() -> str:
    """Identity of the process-number namespace: equal for two processes that see each other's numbers."""
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename  # No /proc (macOS): one process numbering per host.


def exists(pid: int) -> bool:
    """Returns whether there is a process of this number here."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # It belongs to another user.
    return True


def process_start(pid: int) -> str:
    """Returns the start time of process `pid` in clock ticks since boot, or "" when it has ended or isn't told."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # Source: proc(5), /proc/pid/stat: field 2 is a name in brackets that may hold spaces, 3 the state, 22 the start.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]
