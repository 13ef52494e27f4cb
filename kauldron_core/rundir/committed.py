"""Which checkpoints of a trial are complete. Loads neither JAX nor Orbax: the driver asks every second."""

from __future__ import annotations

import os
import pathlib
import re

from kauldron_core.rundir import formats, reading

# Orbax 0.12.8 on a POSIX file system (orbax/checkpoint/_src/path/atomicity.py, AtomicRenameTemporaryPath): a step is
# written into `ckpt_N.orbax-checkpoint-tmp`, whose first file is `_CHECKPOINT_METADATA`. When all items are on disk
# it puts the commit time into that file, adds `commit_success.txt`, and renames the folder to `ckpt_N`. So the
# rename is the commit: a folder of the plain name is complete, and one that lacks the file did not come from Orbax.
# Our checkpointer removes one by renaming it first (`ckpt_N.removed-...`), so half a removed one has another name too.
NAME = re.compile(r"ckpt_(0|[1-9][0-9]{0,17})")
COMMIT_FILE = "_CHECKPOINT_METADATA"
# A trial of a pack has a pointer instead, which gets its name when it is whole.
POINTER_FILE = "pack.json"


def committed_steps(checkpoints_dir: str | os.PathLike[str]) -> list[int]:
    """Returns the steps of the committed checkpoints in a folder, ascending; other names are ignored.

    A checkpoint listed here may still be gone or damaged when it is read.
    """
    try:
        names = os.listdir(checkpoints_dir)
    except (FileNotFoundError, NotADirectoryError):
        return []
    steps = [int(match[1]) for name in names if (match := NAME.fullmatch(name))]
    return sorted(step for step in steps if is_committed(checkpoints_dir, step))


def is_committed(checkpoints_dir: str | os.PathLike[str], step: int) -> bool:
    """Returns whether the checkpoint at `step` is there and complete."""
    folder = pathlib.Path(checkpoints_dir) / f"ckpt_{step}"
    return (folder / COMMIT_FILE).is_file() or (folder / POINTER_FILE).is_file()


def saved_at_s(checkpoints_dir: str | os.PathLike[str], step: int) -> float:
    """Returns when the checkpoint at `step` was saved, as a Unix time; 0 if it is gone."""
    folder = pathlib.Path(checkpoints_dir) / f"ckpt_{step}"
    try:
        found = reading.read_json(folder / "metadata" / "metadata", formats.METADATA)["saved_at"]
        return float(found)
    except (OSError, reading.DamagedFile, KeyError, TypeError):
        try:
            return (folder / COMMIT_FILE).stat().st_mtime
        except OSError:
            return 0.0


def pack_of(checkpoints_dir: str | os.PathLike[str], step: int) -> str | None:
    """Returns the checkpoint that holds the state of a packed trial at `step`; None where the trial has its own."""
    folder = pathlib.Path(checkpoints_dir) / f"ckpt_{step}"
    try:
        return os.path.normpath(folder / reading.read_json(folder / POINTER_FILE, formats.POINTER)["pack"])
    except (OSError, reading.DamagedFile):
        return None
