"""Orbax's asynchronous checkpointer, with errors that name the step and news of what was committed."""

from __future__ import annotations

import collections
import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import jax
from etils import epath

from kauldron_core.ckpts import checksums, layout
from kauldron_core.ckpts.storage_errors import cause_of
from kauldron_core.errors import RunFailed


class SaveFailed(RunFailed):
    """A checkpoint could not be written."""


class BackgroundSaver:
    """Writes one checkpoint at a time, in threads."""

    def __init__(self):
        # Takes seconds to import, and only who reads or writes a checkpoint needs it.
        import orbax.checkpoint as ocp

        self._args = ocp.args
        self._running: epath.Path | None = None
        # Filled by Orbax's thread, emptied by ours.
        self._written: collections.deque[epath.Path] = collections.deque()
        options = ocp.AsyncOptions(post_finalization_callback=self._on_written)
        logging.getLogger("absl").addFilter(_is_news)
        self._checkpointer = ocp.AsyncCheckpointer(ocp.CompositeCheckpointHandler(), async_options=options)

    def start(self, path: epath.Path, *, state: Any, data_state: Any, metadata: dict[str, Any]) -> None:
        """Starts to write `path`; returns once `state` is copied. Nothing may be running."""
        arguments = self._args.Composite(
            **{
                layout.STATE: self._args.PyTreeSave(state),
                layout.DATA: self._args.JsonSave({"iterator": data_state}),
                layout.METADATA: self._args.JsonSave(metadata),
            }
        )
        self._running = path
        with self._naming_checkpoint():
            self._checkpointer.save(path, args=arguments)

    def take_finished(self) -> tuple[int, ...]:
        """Returns the steps that were committed since the last call."""
        with self._naming_checkpoint():
            self._checkpointer.check_for_errors()
        finished: list[int] = []
        # Orbax calls back just before it renames the folder, and the rename is what commits.
        while self._written and layout.is_committed(self._written[0]):
            finished.append(layout.step_of(self._written.popleft()))
        return tuple(finished)

    def wait(self) -> None:
        """Waits for the running save."""
        with self._naming_checkpoint():
            self._checkpointer.wait_until_finished()

    def close(self) -> None:
        """Waits for the running save and ends the threads."""
        try:
            self.wait()
        finally:
            self._checkpointer.close()

    def _on_written(self) -> None:
        """Called in Orbax's thread when all files are there, just before it renames the folder."""
        if self._running is None:
            return
        if jax.process_index() == 0:
            for unfinished in self._running.parent.glob(f"{self._running.name}.orbax-checkpoint-tmp*"):
                checksums.write(unfinished)
        self._written.append(self._running)

    @contextlib.contextmanager
    def _naming_checkpoint(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # Orbax passes on whatever its storage layer met.
            raise SaveFailed(f"{self._running}: the checkpoint could not be saved: {cause_of(error)}") from error


def _is_news(record: logging.LogRecord) -> bool:
    """Returns False for the tracebacks that each thread of a failed save logs; the caller gets the error itself."""
    return not (record.exc_info and "orbax" in record.pathname and record.funcName in ("run", "_thread_func"))
