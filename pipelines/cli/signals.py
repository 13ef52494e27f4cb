"""Signals that mean what SIGTERM means: SIGUSR1 (a job's time is nearly over) and SIGHUP (its terminal is gone)."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ALIKE = (signal.SIGUSR1, signal.SIGHUP)


@contextlib.contextmanager
def ending_as_on_sigterm() -> Iterator[None]:
    """Passes those signals on as SIGTERM, inside the block and in the main thread.

    One that is ignored (`nohup`), or that somebody else handles, stays as it is.
    """
    is_main = threading.current_thread() is threading.main_thread()
    taken = [number for number in _ALIKE if is_main and signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _pass_on)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _pass_on(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)
