"""The process behind `RecorderProcess`: `python -m pipelines.tracking`. See `process.py` for what it is told."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import sys
from dataclasses import dataclass
from typing import Any

from kauldron_core import rundir
from pipelines.tracking.recorder import Recorder
from pipelines.tracking.store import Store

_INTERVAL_S = 1.0


@dataclass(frozen=True)
class _Outcome:
    ok: bool | None


def main(argv: list[str]) -> int:
    """Follows the run directory named on standard input until told to close, or until the other end is gone."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.tracking", description=main.__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--guest", action="store_true", help="another process runs the sweep")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    recorder = Recorder(Store(uri=options.store, root=options.root), warn=_say, is_driver=not options.guest)
    import mlflow  # noqa: F401 - this is the time for it: the driver is still resolving configs

    for message in _messages():
        if message is None:
            recorder.poll()
        elif "run" in message:
            recorder.start(rundir.RunDir(message["run"]))
        elif "close" in message:
            recorder.close(_Outcome(message["close"]))
            return 0
    recorder.close(None)
    return 0


def _messages() -> Any:
    """Yields what arrives on standard input, None after each second without; ends when it is closed."""
    rest = b""
    while True:
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], _INTERVAL_S)
        if not ready:
            yield None
            continue
        data = os.read(sys.stdin.fileno(), 65536)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from (json.loads(line) for line in lines)


def _say(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the driver is gone; what it was told does not matter any more
        sys.stdout.write(json.dumps({"say": text}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
