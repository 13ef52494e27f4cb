"""What of a run is not read, and why: files that are damaged, links that lead elsewhere."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from kauldron_core.errors import DamagedFile
from kauldron_core.rundir import formats, reading
from kauldron_core.rundir.layout import RunDir, TrialDir

_LEFT_OUT = "is a link, and what it leads to is left out"


def damages(run: RunDir) -> list[str]:
    """Returns a line for each: sweep.json, the folders of trials and packs, and of each trial its config and folders.

    What a trial has measured is not looked at: whoever reads it says so.
    """
    found = run.damage()
    return [*([found] if found else []), *_links(run.trials_path), *_links(run.packs_path), *_of_trials(run)]


def _links(parent: pathlib.Path) -> Iterator[str]:
    if parent.is_symlink():
        yield f"{parent}: {_LEFT_OUT}."
    elif parent.is_dir():
        yield from (f"{one}: {_LEFT_OUT}." for one in sorted(parent.iterdir()) if one.is_symlink())


def _of_trials(run: RunDir) -> Iterator[str]:
    for trial in run.trials():
        try:
            reading.read_json(trial.config_path, formats.CONFIG)
        except (DamagedFile, FileNotFoundError, PermissionError) as error:
            yield str(error)
        yield from (f"{one}: {_LEFT_OUT}." for one in _folders(trial) if one.is_symlink())


def _folders(trial: TrialDir) -> tuple[pathlib.Path, ...]:
    return trial.checkpoints, trial.events, trial.evals, trial.logs
