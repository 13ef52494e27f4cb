"""What a sweep stands on, watched while it runs: its run directory, and the Ray that was started for it."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Sequence

from kauldron_core import rundir
from kauldron_core.errors import RunFailed

_LOOK_EVERY_S = 0.4
_NUM_LOOKS = 2
"""Looks in a row that must find a folder gone: a file server may forget a name for a moment."""
_DELETED = " (deleted)"
_RESUME = ("kdr", "sweep", "--resume={}")


def _gone(command: Sequence[str]) -> str:
    at = " ".join(command).format("FOLDER")
    return f"is gone; it was moved or removed while it ran. Where it was moved to, what was saved goes on: {at}"


GONE = _gone(_RESUME)
"""What is said of the run directory of a sweep that nobody knows the place of."""


class RunGone(RunFailed):
    """The run directory is not where it was."""


class RayGone(RunFailed):
    """The Ray that was started for a sweep has ended before it."""


class Abandoned(BaseException):
    """Leaves a sweep whose ground is lost; no `Exception`, so that no library makes up for it on the way."""


class Ground:
    """Looks in a thread of its own while the block runs; an error that comes of what is lost is told as the loss.

    Args:
      run: The run directory; must be there when the block begins.
      on_loss: Called from the thread with what is lost.
      command: Words of the command that goes on with a run, whose folder is `{}` there.
    """

    def __init__(self, run: rundir.RunDir, on_loss: Callable[[RunFailed], None], *, command: Sequence[str] = _RESUME):
        self._run = run
        self._command = command
        self._on_loss = on_loss
        self._lost_process: Callable[[], str | None] = lambda: None
        self._num_misses = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ground", daemon=True)
        self.lost: RunFailed | None = None

    def watch_ray(self, lost_process: Callable[[], str | None]) -> None:
        """Looks after Ray, too, from here on, by asking for the name of a process of it that has ended."""
        self._lost_process = lost_process

    def __enter__(self) -> Ground:
        # Open, the folder can be followed to where it is moved.
        self._folder = os.open(self._run.path, os.O_RDONLY | os.O_DIRECTORY)
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._is_over.set()
        self._thread.join()
        if isinstance(error, Exception):
            for _ in range(_NUM_LOOKS):  # It may have come before the thread has looked.
                self._look()
        os.close(self._folder)
        if error is not None and self.lost is not None:
            raise self.lost from error

    def _watch(self) -> None:
        while not self._is_over.wait(_LOOK_EVERY_S):
            self._look()
            if self.lost is not None:
                self._on_loss(self.lost)
                return

    def _look(self) -> None:
        """Finds out what is lost, if anything is."""
        self._num_misses = 0 if self._is_run_there() else self._num_misses + 1
        if self.lost is None and self._num_misses >= _NUM_LOOKS:
            self.lost = RunGone(f"{self._run.path}: {self._what_became_of_it()}")
        elif self.lost is None and (name := self._lost_process()) is not None:
            self.lost = RayGone(
                f"Ray: its {name} has ended, which it can't do without. {self._to_go_on(self._run.path)}"
            )

    def _is_run_there(self) -> bool:
        """Returns whether the folder of this name is still the one that was opened, and a run."""
        try:
            return os.path.samestat(os.stat(self._run.path), os.fstat(self._folder)) and self._run.exists()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # It can't be seen, which is another matter.

    def _what_became_of_it(self) -> str:
        place = _name_of(self._folder)
        if place is None or not rundir.RunDir(place).exists():
            return _gone(self._command)
        return f"was moved to {place} while it ran. {self._to_go_on(place)}"

    def _to_go_on(self, folder: str | os.PathLike[str]) -> str:
        return f"To go on: {shlex.join(word.format(folder) for word in self._command)}"


def _name_of(descriptor: int) -> str | None:
    """Returns the path that an open folder has now; None where it has none, or the system does not say."""
    try:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None
    return None if path.endswith(_DELETED) else path
