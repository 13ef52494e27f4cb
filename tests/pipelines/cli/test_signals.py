"""Signals that end a command in order."""

from __future__ import annotations

import signal

from pipelines.cli.signals import ending_as_on_sigterm


def test_the_command_line_passes_them_on_as_sigterm() -> None:
    """F24: whatever a command does on SIGTERM, it does then."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with ending_as_on_sigterm():
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGUSR1)
        assert came == [signal.SIGTERM, signal.SIGTERM]
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
