"""`Checkpointer`: saves in the background, keeps the newest ones, tells when one is safely on disk."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import time
import uuid
from typing import Any, TypeVar

import jax
from etils import epath

from kauldron_core.ckpts import layout, mismatch, reader
from kauldron_core.ckpts.background import BackgroundSaver
from kauldron_core.errors import ConfigError
from kauldron_core.rundir import check_path

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)
_OWNER_FILE = ".owner"
_REMOVED = ".removed"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Checkpointer:
    """Saves to `workdir/checkpoints/ckpt_N` with Orbax.

    Attributes:
      save_interval_steps: A checkpoint is saved at its multiples, and at the end.
      max_to_keep: How many are kept, the latest always among them; None keeps all. Only checkpoints that were
        written for this folder are ever removed.
      workdir: The folder of the experiment; the trainer's where unset.
    """

    save_interval_steps: int = 1_000
    max_to_keep: int | None = None
    workdir: str | os.PathLike[str] | None = None

    def __post_init__(self):
        if self.save_interval_steps < 1:
            raise ConfigError(f"save_interval_steps: must be at least 1, not {self.save_interval_steps}.")
        if self.max_to_keep is not None and self.max_to_keep < 1:
            raise ConfigError(f"max_to_keep: must be at least 1 (or None to keep all), not {self.max_to_keep}.")

    @property
    def directory(self) -> epath.Path:
        """The folder that holds the checkpoints."""
        if self.workdir is None:
            raise ConfigError("checkpointer.workdir: unset. Give it, or put the checkpointer into a Trainer.")
        check_path(self.workdir, at="checkpointer.workdir")
        return epath.Path(self.workdir).absolute() / "checkpoints"

    @property
    def all_steps(self) -> list[int]:
        """Steps of the committed checkpoints, ascending."""
        return layout.all_steps(self.directory)

    @property
    def latest_step(self) -> int | None:
        """The newest committed step, None if there is no checkpoint."""
        return layout.latest_step(self.directory)

    def should_save(self, step: int) -> bool:
        """Returns whether a checkpoint is due at `step`."""
        return step > 0 and step % self.save_interval_steps == 0

    def save(self, state: Any, data_state: Any = None, *, step: int) -> None:
        """Starts a save and returns once `state` may be changed; the files are written in the background.

        Args:
          state: The state; nothing of it is kept after the call.
          data_state: State of the data iterator, anything that JSON holds.
          step: Its step, above that of every checkpoint in the folder.

        Raises:
          SaveFailed: If this save, or the one before it, failed.
          ConfigError: If the folder holds a checkpoint of this step or a later one.
        """
        self.wait()
        latest = self.latest_step
        if latest is not None and step <= latest:
            raise ConfigError(
                f"{self.directory}: can't save step {step}, there is a checkpoint at step {latest}. "
                "Resume from it, or start in an empty folder."
            )
        metadata = {
            "format": 1,
            "step": step,
            "owner": self._owner,
            "saved_at": time.time(),
            "state": mismatch.describe(state),
        }
        self._saver.start(layout.step_path(self.directory, step), state=state, data_state=data_state, metadata=metadata)

    def finished(self) -> tuple[int, ...]:
        """Returns the steps that were committed since the last call, and removes checkpoints that are too many.

        Costs next to nothing, so a loop may ask at each step.

        Raises:
          SaveFailed: If a save failed.
        """
        if "_saver" not in self.__dict__:
            return ()
        steps = self._saver.take_finished()
        if steps:
            self._rotate()
        return steps

    def wait(self) -> None:
        """Waits until nothing is being written.

        Raises:
          SaveFailed: If the save failed.
        """
        if "_saver" in self.__dict__:
            self._saver.wait()

    def close(self) -> None:
        """Waits like `wait` and frees the background threads. The checkpointer can be used again."""
        saver = self.__dict__.pop("_saver", None)
        if saver is not None:
            saver.close()

    def restore(self, template: _T, *, step: int = -1, noop_if_missing: bool = False) -> _T:
        """Returns the state at `step`, by default the newest that can be read. See `load`.

        Args:
          template: The state, or its shapes.
          step: Which checkpoint; -1 is the newest.
          noop_if_missing: Return `template` where there is no checkpoint at all, instead of raising.
        """
        if noop_if_missing and step == -1 and self.latest_step is None:
            return template
        return self.load(template, step=step).state

    def load(self, template: Any, *, step: int = -1) -> reader.Checkpoint:
        """Returns the checkpoint at `step` with its data state, by default the newest that can be read.

        Raises:
          FileNotFoundError: If there is none.
        """
        return reader.load(self.directory, template, step=step)

    def set_aside(self, step: int) -> None:
        """Renames a damaged checkpoint, so that its step can be saved again. Nothing is removed."""
        if jax.process_index() > 0:
            return
        path = layout.step_path(self.directory, step)
        target = path.with_name(f"{path.name}.damaged-{uuid.uuid4().hex[:8]}")
        path.rename(target)
        _logger.warning("%s: set aside as %s.", path, target.name)

    def _rotate(self) -> None:
        if self.max_to_keep is None or jax.process_index() > 0:
            return
        for step in self.all_steps[: -self.max_to_keep]:
            path = layout.step_path(self.directory, step)
            if layout.read_metadata(path).get("owner") == self._owner:
                # Renamed first: half a folder must never look like a checkpoint.
                path.rename(path.with_name(path.name + _REMOVED))
        for path in self.directory.glob(f"*{_REMOVED}"):
            path.rmtree()

    @functools.cached_property
    def _saver(self) -> BackgroundSaver:
        return BackgroundSaver()

    @functools.cached_property
    def _owner(self) -> str:
        """The mark of what was written for this folder; a checkpoint copied into it carries another."""
        path = self.directory / _OWNER_FILE
        if jax.process_index() > 0:
            return ""  # Only the first process writes metadata and removes checkpoints.
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}-{uuid.uuid4().hex}")
            draft.write_text(uuid.uuid4().hex)
            draft.rename(path)
        return path.read_text().strip()
