"""A wish to stop, from a signal or from another thread, that the loop reads between two steps."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_UNLESS_TAKEN = (signal.SIGUSR1, signal.SIGHUP)
"""They mean the same as SIGTERM where nobody handles or ignores them (`nohup`)."""


class StopRequest:
    """Whether somebody asked to stop, and who.

    Attributes:
      event: Set once somebody did.
      signal: The signal that came, None if none did.
    """

    def __init__(self, event: threading.Event | None = None):
        self.event = threading.Event() if event is None else event
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.event.is_set()

    def __str__(self) -> str:
        return f"stopped by {self.signal.name}" if self.signal else "stopped on request"


@contextlib.contextmanager
def catching_signals(request: StopRequest) -> Iterator[StopRequest]:
    """Turns signals that end a process into `request` inside the block; a second one acts as it would without us.

    Only the main thread may set handlers. In another one the signals stay as they are.
    """
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    free = [number for number in _UNLESS_TAKEN if signal.getsignal(number) == signal.SIG_DFL]
    before = {number: signal.getsignal(number) for number in (*SIGNALS, *free)}

    def on_signal(number: int, frame: FrameType | None) -> None:
        request.signal = signal.Signals(number)
        request.event.set()
        _restore(before)

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield request
    finally:
        _restore(before)


def _restore(handlers: Mapping[signal.Signals, object]) -> None:
    for number, handler in handlers.items():
        # None: it was set by C code and can't be set from here.
        if handler is not None:
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]
