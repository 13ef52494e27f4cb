"""Finished evaluations: `evals/NAME/STEP.json`, one file each, there or not there."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from kauldron_core.rundir import atomic, formats, names, reading
from kauldron_core.rundir.status import DAMAGED

FOLDER = "evals"
REPLACED = "replaced"
"""Folder below an evaluator's that keeps what `again` replaced."""

Record = dict[str, Any]
_STEP = re.compile(r"(0|[1-9][0-9]{0,17})\.json")


def result_path(trial_dir: str | os.PathLike[str], name: str, step: int) -> pathlib.Path:
    """Returns where the result of evaluator `name` at `step` stands."""
    names.check_name(name, kind="evaluator")
    if step < 0:
        raise ValueError(f"step {step} is negative")
    return pathlib.Path(trial_dir) / FOLDER / name / f"{int(step)}.json"


def write_eval_result(
    trial_dir: str | os.PathLike[str], name: str, step: int, record: Mapping[str, Any], *, again: bool = False
) -> bool:
    """Records a finished evaluation and returns True, or returns False when there is a record and it stays.

    Args:
      trial_dir: The trial's folder.
      name: The evaluator's name.
      step: The checkpoint's step.
      record: What was found; `evaluator` and `step` are filled in.
      again: Replace an existing record, which is kept under `replaced/`.
    """
    path = result_path(trial_dir, name, step)
    atomic.make_folder(path.parent)
    text = atomic.to_json_text({"evaluator": name, "step": int(step), **record})
    if not again:
        return atomic.create_exclusive(path, text)
    _keep_old(path)
    atomic.write_atomic(path, text)
    return True


def read_eval_result(trial_dir: str | os.PathLike[str], name: str, step: int) -> Record | None:
    """Returns one record, None if there is none; of a damaged one its status is `damaged`, and its error says why."""
    return _read(result_path(trial_dir, name, step), name, step)


def read_eval_results(trial_dir: str | os.PathLike[str]) -> dict[tuple[str, int], Record]:
    """Returns all records of a trial by (evaluator name, step), in this order; see `read_eval_result`."""
    found = {key: _read(path, *key) for key, path in sorted(_result_files(trial_dir).items())}
    return {key: record for key, record in found.items() if record is not None}


def list_eval_results(trial_dir: str | os.PathLike[str]) -> set[tuple[str, int]]:
    """Returns which evaluations have a record, without reading them."""
    return set(_result_files(trial_dir))


def _read(path: pathlib.Path, name: str, step: int) -> Record | None:
    try:
        found = reading.read_json(path, formats.RESULT)
    except FileNotFoundError:
        return None
    except reading.DamagedFile as error:
        found = {"status": DAMAGED, "values": {}, "error": str(error)}
    # The place of a file decides what it is about.
    return {**found, "evaluator": name, "step": step}


def _result_files(trial_dir: str | os.PathLike[str]) -> dict[tuple[str, int], pathlib.Path]:
    root = pathlib.Path(trial_dir) / FOLDER
    if not root.is_dir():
        return {}
    folders = [folder for folder in root.iterdir() if names.fault(folder.name) is None and folder.is_dir()]
    return {
        (folder.name, int(match[1])): file
        for folder in folders
        for file in folder.iterdir()
        if (match := _STEP.fullmatch(file.name))
    }


def _keep_old(path: pathlib.Path) -> None:
    """Gives an existing record a second name, so that replacing it loses nothing."""
    if not path.exists():
        return
    folder = atomic.make_folder(path.parent / REPLACED)
    number = 1
    # `link_exclusive` also says yes when the name is this very file: a writer died between keeping and replacing.
    while not atomic.link_exclusive(path, folder / f"{path.stem}-{number}.json"):
        number += 1
