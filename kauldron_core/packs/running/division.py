"""A pack that does not fit into memory, and is trained half after half."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence

import jax

from kauldron_core import rundir
from kauldron_core.errors import is_out_of_memory
from kauldron_core.packs.running.checkpoints import Snapshot, SpecOf

_FILE = "halves.json"
Origin = Callable[[SpecOf], Snapshot | None]
"""Returns where a pack begins that has no checkpoint of its own; None: at the first step."""


@dataclasses.dataclass(frozen=True)
class Division:
    """How a pack was divided.

    Attributes:
      step: The checkpoint that its halves go on from; None: they begin where the pack began.
      halves: Indices of the trials of each.
    """

    step: int | None
    halves: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, running: Sequence[int], *, step: int | None) -> Division:
        """Returns the division into two halves; one that still trains goes on without the rows of those that ended."""
        middle = (len(running) + 1) // 2
        halves = (tuple(running[:middle]), tuple(running[middle:]))
        return cls(step, tuple(half for half in halves if half))

    @classmethod
    def read(cls, folder: str | os.PathLike[str] | None) -> Division | None:
        """Returns how the pack of a folder was divided, None if it was not."""
        if folder is None or not (path := pathlib.Path(folder) / _FILE).exists():
            return None
        record = rundir.read_json(path, rundir.formats.HALVES)
        return cls(record["step"], tuple(map(tuple, record["halves"])))

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Puts it on record, so that a restart goes the same way."""
        rundir.make_folder(folder)
        rundir.write_json(pathlib.Path(folder) / _FILE, dataclasses.asdict(self))


def half_folder(folder: str | os.PathLike[str] | None, number: int) -> pathlib.Path | None:
    """Returns the folder of a half."""
    return None if folder is None else pathlib.Path(folder) / f"half_{number}"


def origin_of_part(origin: Origin, indices: Sequence[int]) -> Origin:
    """Returns the origin of some trials of a pack, as a pack of their own."""

    def found(spec_of: SpecOf) -> Snapshot | None:
        snapshot = origin(spec_of)
        if snapshot is None:
            return None
        step, states, standing = snapshot
        return step, states, standing.part(indices)

    return found


def is_shortage(error: Exception) -> bool:
    """Returns whether a device had too little memory for what was to be computed."""
    return isinstance(error, jax.errors.JaxRuntimeError) and is_out_of_memory(error)
