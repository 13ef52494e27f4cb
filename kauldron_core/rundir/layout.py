"""Where everything lies in a run directory."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any, TypeVar

from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.rundir import atomic, formats, json_text, names, reading, results, status, tables
from kauldron_core.rundir import lock as lock_lib

FORMAT = 1
"""Version of the run directory's layout, kept in sweep.json."""

_Folder = TypeVar("_Folder", "TrialDir", "PackDir")


@dataclasses.dataclass(frozen=True, init=False)
class _Dir:
    """A folder; a path object that knows what is in it."""

    path: pathlib.Path

    def __init__(self, path: str | os.PathLike[str]):
        names.refuse_address(path)
        object.__setattr__(self, "path", pathlib.Path(path))

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def name(self) -> str:
        return self.path.name


@dataclasses.dataclass(frozen=True, init=False)
class _TrainingDir(_Dir):
    """The folder of what a worker trains: a trial, or a pack of them."""

    @property
    def checkpoints(self) -> pathlib.Path:
        return self.path / "checkpoints"

    @property
    def logs(self) -> pathlib.Path:
        return self.path / "logs"


@dataclasses.dataclass(frozen=True, init=False)
class TrialDir(_TrainingDir):
    """The folder of one trial; a path object that knows what is in it."""

    @property
    def config_path(self) -> pathlib.Path:
        return self.path / "config.json"

    @property
    def events(self) -> pathlib.Path:
        return self.path / "events"

    @property
    def evals(self) -> pathlib.Path:
        return self.path / results.FOLDER

    def exists(self) -> bool:
        """Returns whether this is a trial's folder: it has a config."""
        return self.config_path.is_file()

    def create(self, config_json: str) -> TrialDir:
        """Makes the folder with its config and returns it; a config that stands must be the same.

        Raises:
          ConfigError: If the folder holds another config.
        """
        atomic.make_folder(self.path)
        if not atomic.create_exclusive(self.config_path, config_json):
            saved = reading.read_bytes(self.config_path)
            if saved != config_json.encode() and not self._is_same(saved, config_json):
                raise ConfigError(f"{self.config_path}: holds another config. Choose another name or run directory.")
        return self

    def _is_same(self, saved: bytes, config_json: str) -> bool:
        """Returns whether two texts say the same: the spelling of NaN and infinities has changed."""
        texts = (json_text.dumps(reading.parse(data, self.config_path)) for data in (saved, config_json.encode()))
        return next(texts) == next(texts)

    def status(self) -> str:
        """Returns the trial's status; `queued` when nothing was written yet, `damaged` where it can't be read."""
        return str(status.read_status(self.path)["status"])

    def run(self) -> RunDir | None:
        """Returns the run directory that holds this trial, None for a trial on its own."""
        run = RunDir(self.path.absolute().parent.parent)
        return run if self.path.absolute().parent == run.trials_path.absolute() else None


@dataclasses.dataclass(frozen=True, init=False)
class PackDir(_TrainingDir):
    """The folder of trials that are trained in one program; a path object that knows what is in it."""

    @property
    def pack_path(self) -> pathlib.Path:
        return self.path / "pack.json"

    def exists(self) -> bool:
        """Returns whether this is a pack's folder: it says who is in it."""
        return self.pack_path.is_file()

    def read(self) -> dict[str, Any]:
        """Content of pack.json; `trials` are the names of its trials, in the order of its rows."""
        return reading.read_json(self.pack_path, formats.PACK)

    def write(self, content: Mapping[str, Any]) -> None:
        """Replaces pack.json; the folder is made if it is not there."""
        atomic.make_folder(self.path)
        atomic.write_json(self.pack_path, dict(content))

    def run(self) -> RunDir:
        """Returns the run directory that holds this pack."""
        return RunDir(self.path.absolute().parent.parent)


@dataclasses.dataclass(frozen=True, init=False)
class RunDir(_Dir):
    """The folder of one sweep, or of one run; a path object that knows what is in it."""

    @classmethod
    def create(cls, path: str | os.PathLike[str], sweep: Mapping[str, Any] | None = None) -> RunDir:
        """Makes a new run directory and returns it.

        Args:
          path: Where; parents are made.
          sweep: What sweep.json holds besides the format version.

        Raises:
          ConfigError: If there is a run already, or checkpoints could not be read in such a path.
        """
        run = cls(names.check_path(path))
        atomic.make_folder(run.trials_path)
        # Last and exclusive: a folder is a run directory from the moment it has its sweep.json.
        if not atomic.create_exclusive(run.sweep_path, atomic.to_json_text({"format": FORMAT, **(sweep or {})})):
            raise ConfigError(f"{run.path}: holds a run already. Resume it, or choose another --run.name.")
        return run

    @property
    def sweep_path(self) -> pathlib.Path:
        return self.path / "sweep.json"

    @property
    def trials_path(self) -> pathlib.Path:
        return self.path / "trials"

    @property
    def packs_path(self) -> pathlib.Path:
        return self.path / "packs"

    @property
    def code(self) -> pathlib.Path:
        return self.path / "code"

    @property
    def sweep(self) -> dict[str, Any]:
        """What sweep.json holds.

        Raises:
          DamagedFile: If it can't be read.
          ConfigError: If it was written by a later version.
        """
        sweep = reading.read_json(self.sweep_path, formats.SWEEP)
        if sweep.get("format", 0) > FORMAT:
            raise ConfigError(f"{self.sweep_path}: format {sweep['format']} is newer than this version's {FORMAT}.")
        return sweep

    @property
    def readable_sweep(self) -> dict[str, Any]:
        """What sweep.json holds, nothing where it is damaged: for who shows a run, and says so in a line (`damage`)."""
        return {} if self.damage() else self.sweep

    def damage(self) -> str | None:
        """Fault of sweep.json if it can't be read, else None."""
        try:
            _ = self.sweep
        except (reading.DamagedFile, FileNotFoundError) as error:
            return str(error)
        return None

    def exists(self) -> bool:
        """Returns whether this is a run directory."""
        return self.sweep_path.is_file()

    def write_sweep(self, sweep: Mapping[str, Any]) -> None:
        """Replaces sweep.json."""
        atomic.write_json(self.sweep_path, {"format": FORMAT, **sweep})

    def trial(self, name: str) -> TrialDir:
        """Returns the folder of the trial `name`, which need not exist yet."""
        return TrialDir(self.trials_path / _checked(self.trials_path, name, kind="trial"))

    def find_trial(self, name: str) -> TrialDir:
        """Returns the folder of an existing trial.

        Raises:
          ConfigError: If there is none of this name.
        """
        trials = {trial.name: trial for trial in self.trials()}
        if name not in trials:
            raise ConfigError(unknown_name("trial", name, trials, at=os.fspath(self.path)))
        return trials[name]

    def trials(self) -> list[TrialDir]:
        """Returns the trials that exist, by name."""
        return [trial for trial in _folders(self.trials_path, TrialDir) if trial.exists()]

    def pack(self, name: str) -> PackDir:
        """Returns the folder of the pack `name`, which need not exist yet."""
        return PackDir(self.packs_path / _checked(self.packs_path, name, kind="pack"))

    def packs(self) -> list[PackDir]:
        """Returns the packs that exist, by name."""
        return [pack for pack in _folders(self.packs_path, PackDir) if pack.exists()]

    def lock(self) -> lock_lib.RunLock:
        """Returns the lock that keeps two drivers apart, to be held in a `with` block."""
        return lock_lib.RunLock(self.path / ".lock")

    def write_trials(self, rows: list[dict[str, Any]]) -> None:
        """Replaces trials.parquet: one row a planned trial."""
        tables.write_table(self.path / "trials.parquet", rows)

    def write_results(self, rows: list[dict[str, Any]]) -> None:
        """Replaces results.parquet: one row a trial with what came out."""
        tables.write_table(self.path / "results.parquet", rows)


def _checked(parent: pathlib.Path, name: str, *, kind: str) -> str:
    """Returns `name` if it can be that of a folder in `parent`. One that lies there already may have an odd one."""
    is_inside = not name.startswith(".") and not set(name) & {"/", "\\", "\0"}
    return name if is_inside and name and (parent / name).is_dir() else names.check_name(name, kind=kind)


def _folders(parent: pathlib.Path, kind: type[_Folder]) -> list[_Folder]:
    """Entries of a folder, by name; none if it is missing, or a link (which leads to another run)."""
    if not parent.is_dir() or parent.is_symlink():
        return []
    return [kind(one) for one in sorted(parent.iterdir()) if not one.name.startswith(".") and not one.is_symlink()]
