"""What a trainer may rename and remove in its folder of checkpoints: what it wrote there, and nothing else."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import uuid

from etils import epath

from kauldron_core import rundir
from kauldron_core.ckpts import layout
from kauldron_core.errors import ConfigError

_logger = logging.getLogger(__name__)

_OWNER_FILE = ".owner"
_SAVING_FILE = ".saving"
_DRAFT = ".draft-"
_MARK = re.compile(r"[0-9a-f]{32}")


class OwnedFolder:
    """A folder of checkpoints, as its only writer sees it.

    Each checkpoint carries the mark of the folder that it was written for; one that was copied here carries another.
    """

    def __init__(self, directory: epath.Path):
        self.directory = directory

    @property
    def mark(self) -> str:
        """The mark of what is written for this folder; empty before the first save, and where it is not one of ours."""
        try:
            found = layout.read_bytes(self.directory / _OWNER_FILE).decode().strip()
        except (FileNotFoundError, UnicodeDecodeError, rundir.DamagedFile):
            return ""
        return found if _MARK.fullmatch(found) else ""

    def owns(self, step: int) -> bool:
        """Returns whether the checkpoint at `step` was written for this folder."""
        owner = layout.read_metadata(layout.step_path(self.directory, step)).get("owner")
        return bool(owner) and owner == self.mark

    def remove(self, steps: list[int]) -> list[int]:
        """Removes those of these checkpoints that were written here, and returns their steps.

        Raises:
          ConfigError: If the folder is a link, so that what it leads to is another's. Nothing is removed then.
        """
        if not self.mark:
            return []
        if not self._is_remote:
            rundir.check_inside(self.directory / "any", inside=self.directory.parent)
        rest = f".removed-{self.mark}"
        self._clear(f"ckpt_*{rest}")  # What an earlier removal left would be in the way.
        removed = [step for step in steps if self.owns(step)]
        for step in removed:
            path = layout.step_path(self.directory, step)
            # Renamed first: half a folder must never look like a checkpoint. Somebody may have removed it by hand.
            with contextlib.suppress(FileNotFoundError):
                path.rename(path.with_name(path.name + rest))
        self._clear(f"ckpt_*{rest}")
        return removed

    def set_aside(self, step: int) -> epath.Path:
        """Renames whatever has the name of the checkpoint at `step`, so that the step can be saved again."""
        path = layout.step_path(self.directory, step)
        number = 1
        while (target := path.with_name(f"{path.name}.damaged-{number}")).exists():
            number += 1
        path.rename(target)
        _logger.warning("%s: set aside as %s.", path, target.name)
        return target

    def begin_save(self, step: int) -> None:
        """Makes room for the checkpoint at `step`: clears what a killed save left, sets aside what is in the way."""
        if not self.mark:
            self._make()
            self._write(self.directory / _OWNER_FILE, uuid.uuid4().hex)
        begun = self.directory / _SAVING_FILE
        if (cut := _read_step(begun)) is not None:
            # A save that came to its end has renamed its temporary folder; one that is there was cut off.
            self._clear(f"ckpt_{cut}.orbax-checkpoint-tmp*")
        path = layout.step_path(self.directory, step)
        if path.exists() and not layout.is_committed(path):
            self.set_aside(step)
        self._write(begun, json.dumps(step))

    def _make(self) -> None:
        if self._is_remote:
            self.directory.mkdir(parents=True, exist_ok=True)
        else:
            rundir.make_folder(self.directory)

    @property
    def _is_remote(self) -> bool:
        return "://" in os.fspath(self.directory)

    def _clear(self, pattern: str) -> None:
        for path in self.directory.glob(pattern):
            try:
                if self._is_remote:
                    path.rmtree()
                else:
                    rundir.remove(path, inside=self.directory.parent)
            except (OSError, ConfigError) as error:
                # It is no checkpoint any more, and takes room only; training goes on, the next removal tries again.
                _logger.warning("%s: can't be removed: %s", path, error)

    def _write(self, path: epath.Path, text: str) -> None:
        draft = path.with_name(f"{path.name}{_DRAFT}{uuid.uuid4().hex}")
        draft.write_text(text)
        draft.replace(path)


def _read_step(begun: epath.Path) -> int | None:
    """Returns the step of the save that was begun last; None where the file is not there, or holds none."""
    try:
        return int(layout.read_bytes(begun))
    except (FileNotFoundError, ValueError):
        return None
