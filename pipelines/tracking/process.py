"""The recorder in a process of its own, as a sidecar.

MLflow takes seconds to import and more to make its first store; beside the driver, which is starting Ray meanwhile,
that costs nothing. The driver stays small, and a recorder that dies is started again from the files.

Driver and child talk in lines of JSON: `{"run": path}` and `{"close": ok}` down, `{"say": text}` up. When the driver
dies its end of the pipe closes; the child then writes what there is and marks the sweep as killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from kauldron_core import rundir
from pipelines.tracking.store import Store

_MOST_RESTARTS = 5
_CLOSE_S = 120.0


class RecorderProcess:
    """Runs a `Recorder` in a child process; `start`, `poll` and `close` as a sidecar's.

    Args:
      store: Where to write.
      warn: Gets one line for each kind of trouble; called from a thread.
      is_driver: As for `Recorder`.
    """

    def __init__(self, store: Store, *, warn: Callable[[str], None] = print, is_driver: bool = True) -> None:
        self.store = store
        self._warn = warn
        self._is_driver = is_driver
        self._run: Path | None = None
        self._child: _Child | None = None
        self._restarts = 0

    def prepare(self) -> None:
        """Starts the child, which imports MLflow and touches nothing before `start`; optional."""
        if self._child is None:
            self._child = _Child(self.store, is_driver=self._is_driver, say=self._warn)

    def start(self, run_dir: rundir.RunDir) -> None:
        """Begins to record this run directory, without waiting."""
        self.prepare()
        self._run = run_dir.path.absolute()
        self._send({"run": str(self._run)})

    def poll(self) -> None:
        """Starts the child again if it has died."""
        if self._child is None or self._child.is_alive() or self._restarts >= _MOST_RESTARTS:
            return
        self._restarts += 1
        self._warn(f"The MLflow recorder ended ({self._child.last_words()}) and is started again.")
        self._child.close()
        self._child = None
        if self._run is not None:
            self.start(rundir.RunDir(self._run))

    def close(self, results: object = None) -> None:
        """Waits until everything is written, at most two minutes."""
        if self._run is not None:
            self.poll()
            self._send({"close": getattr(results, "ok", None)})
        self.stop()

    def stop(self) -> None:
        """Ends the child: at once if it records nothing, else when it has written everything."""
        if self._child is None:
            return
        if self._run is None:
            self._child.kill()
        elif not self._child.end(timeout_s=_CLOSE_S):
            words = self._child.last_words()
            self._warn(f"The MLflow recorder did not finish ({words}). To do it later: kdr record {self._run}")
        self._child.close()
        self._child = None

    @property
    def pid(self) -> int | None:
        """Process number of the child, None while there is none."""
        return None if self._child is None else self._child.process.pid

    def _send(self, message: dict[str, object]) -> None:
        if self._child is not None:
            self._child.send(message)


class _Child:
    """The process and its pipes."""

    def __init__(self, store: Store, *, is_driver: bool, say: Callable[[str], None]) -> None:
        command = [sys.executable, "-m", "pipelines.tracking", "--store", store.uri, "--root", store.root]
        self._errors: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - as long as the child
        self.process = subprocess.Popen(
            command if is_driver else [*command, "--guest"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **store.environment, "PYTHONPATH": _python_path(), "JAX_PLATFORMS": "cpu"},
            start_new_session=True,  # Ctrl-C is for the driver, which then closes us in order
        )
        self._listener = threading.Thread(target=self._listen, args=(say,), name="recorder-says", daemon=True)
        self._listener.start()

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def send(self, message: dict[str, object]) -> None:
        pipe = self.process.stdin
        if pipe is None or pipe.closed:
            return
        with contextlib.suppress(BrokenPipeError):  # it has died; `poll` starts it again
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()

    def end(self, *, timeout_s: float) -> bool:
        """Says whether the child ended by itself and well."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return code == 0

    def kill(self) -> None:
        """Ends the child at once."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Gives the pipes back, once the process has ended."""
        self._listener.join(timeout=5.0)
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def last_words(self) -> str:
        """Returns its exit status and the last line of its standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        code = self.process.returncode
        state = "still running" if code is None else f"exit status {code}"
        return f"{state}: {lines[-1]}" if lines else state

    def _listen(self, say: Callable[[str], None]) -> None:
        for line in self.process.stdout or ():
            say(str(json.loads(line)["say"]))


def _python_path() -> str:
    """Returns a PYTHONPATH under which the child finds the same packages, wherever it runs."""
    ours = str(Path(__file__).resolve().parents[2])
    folders = [ours, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(folders))
