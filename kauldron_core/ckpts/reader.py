"""Reads whole checkpoints. Changes nothing in the folder, so evaluators may read while a trainer writes."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import jax
from etils import epath

from kauldron_core import rundir
from kauldron_core.ckpts import arrays, checksums, layout, mismatch, pointers
from kauldron_core.ckpts.storage_errors import cause_of, is_shortage
from kauldron_core.errors import ConfigError, RunFailed, listing, unknown_name

_logger = logging.getLogger(__name__)


class DamagedCheckpoint(RunFailed):
    """A checkpoint that was committed and can no longer be read."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One checkpoint in memory.

    Attributes:
      step: Its step.
      state: The state, with the structure of the template.
      data_state: State of the data iterator after the last batch that was consumed.
      metadata: What it says of itself.
      damaged_steps: Newer checkpoints that could not be read and were passed over.
    """

    step: int
    state: Any
    data_state: Any
    metadata: dict[str, Any]
    damaged_steps: tuple[int, ...] = ()


class MissingCheckpoint(ConfigError, FileNotFoundError):
    """There is no such checkpoint."""


def load(
    directory: str | os.PathLike[str], template: Any, *, step: int = -1, only: Collection[str] | None = None
) -> Checkpoint:
    """Returns the checkpoint at `step`, by default the newest that can be read.

    Args:
      directory: The folder that holds `ckpt_N`.
      template: A state of arrays or shapes; what is read takes its structure and, where it has one, its sharding.
      step: Which one; -1 is the newest. A newest one that is damaged is reported, and the one before it is read.
      only: The parts of the state to read, such as `('step', 'params', 'collections')`; the others are None in what
        comes back, take no memory, and need not fit the template.

    Raises:
      MissingCheckpoint: A FileNotFoundError, if there is no such checkpoint.
      DamagedCheckpoint: If the one asked for, or every one there is, can't be read.
      StateMismatch: If it holds other arrays than the template.
    """
    steps = layout.all_steps(directory)
    if step != -1:
        if step not in steps:
            raise MissingCheckpoint(
                f"{os.fspath(directory)}: no checkpoint at step {step}. Available: {listing(map(str, steps))}."
            )
        return _load_one(directory, template, step, only)
    if not steps:
        raise MissingCheckpoint(f"{os.fspath(directory)}: there is no checkpoint.")
    _report_unfinished(directory, newest=steps[-1])
    damaged: list[int] = []
    for candidate in reversed(steps):
        try:
            found = _load_one(directory, template, candidate, only)
        except DamagedCheckpoint as error:
            if not layout.is_committed(layout.step_path(directory, candidate)):
                # The trainer has saved a newer one and removed this one meanwhile.
                return load(directory, template, only=only)
            _logger.warning("%s", error)
            damaged.append(candidate)
            if len(damaged) == len(steps):
                raise
        else:
            return dataclasses.replace(found, damaged_steps=tuple(damaged))
    raise AssertionError("unreachable")


def _report_unfinished(directory: str | os.PathLike[str], *, newest: int) -> None:
    for step in layout.unfinished_steps(directory):
        if step > newest:
            _logger.warning(
                "%s: not a whole checkpoint, it is passed over for the one at step %d.",
                layout.step_path(directory, step),
                newest,
            )


def read_metadata(path: epath.Path) -> dict[str, Any]:
    """Metadata of a committed checkpoint, after a check that it is whole.

    Raises:
      DamagedCheckpoint: If a part is missing, or it doesn't say what it holds.
      ConfigError: If it may not be read. It may be fine, so no older one is taken in its place.
    """
    try:
        for folder in (path, *(path / part for part in layout.PARTS)):
            _ = list(folder.iterdir()) if folder.is_dir() else None
    except PermissionError as error:
        raise ConfigError(_not_permitted(path, error)) from error
    missing = layout.missing_parts(path)
    if missing:
        raise DamagedCheckpoint(f"{path}: damaged, it lacks {listing(missing)}.")
    metadata = layout.read_metadata(path)
    if not isinstance(metadata.get("state"), dict):
        raise DamagedCheckpoint(f"{path}: damaged, its metadata can't be read.")
    return metadata


def read_data_state(path: epath.Path) -> Any:
    """Returns the state of the data iterator in a committed checkpoint.

    Raises:
      DamagedCheckpoint: If it can't be read.
    """
    try:
        return layout.read_json(path / layout.DATA / layout.METADATA)["iterator"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        if is_shortage(error):
            raise
        raise DamagedCheckpoint(f"{path}: damaged, its data state can't be read: {cause_of(error)}") from error


def read_arrays(path: epath.Path, wanted: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Returns the arrays at some paths of a committed checkpoint; see `arrays.read_some`.

    Raises:
      DamagedCheckpoint: If they can't be read.
    """
    with _calling_it_damaged(path):
        return arrays.read_some(path, wanted)


def _load_one(directory: str | os.PathLike[str], template: Any, step: int, only: Collection[str] | None) -> Checkpoint:
    path = layout.step_path(directory, step)
    metadata = read_metadata(path)
    _check_bytes(path)
    if only is None:
        mismatch.check(metadata["state"], template, place=str(path))
        with _calling_it_damaged(path):
            state = arrays.read_all(path, template)
    else:
        state = _load_parts(path, metadata["state"], template, only)
    return Checkpoint(step=step, state=state, data_state=read_data_state(path), metadata=metadata)


_whole: set[tuple[str, float]] = set()
"""Checkpoints that were found whole, with the time of their checksums: the trials of a pack share their files."""


def _check_bytes(path: epath.Path) -> None:
    """Raises DamagedCheckpoint if a file is not as it was saved. The storage layer reads flipped bits as they are."""
    try:
        row = pointers.find(path)
    except rundir.DamagedFile as error:
        raise DamagedCheckpoint(str(error)) from error
    place = path if row is None else row.path
    try:
        key = str(place), (place / checksums.FILE).stat().mtime
    except OSError:
        return  # Saved without, or elsewhere: see `checksums`.
    if key in _whole:
        return
    changed = checksums.differences(place)
    if denied := [text for text in changed if "permission denied" in text.lower()]:
        raise ConfigError(_not_permitted(place, PermissionError(denied[0])))
    if changed:
        others = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        raise DamagedCheckpoint(f"{place}: damaged, {changed[0]}{others}.")
    _whole.add(key)


def _load_parts(path: epath.Path, saved: dict[str, str], template: Any, only: Collection[str]) -> Any:
    """Returns `template` with the arrays of some of its parts, and None for the other parts."""
    parts = template._asdict() if hasattr(template, "_asdict") else dict(template)
    for name in only:
        if name not in parts:
            raise ConfigError(unknown_name("part of the state", name, parts, at="only"))
    kept = {name: part for name, part in parts.items() if name in only}
    saved = {place: spec for place, spec in saved.items() if place.partition(".")[0] in kept}
    mismatch.check(saved, kept, place=str(path))
    leaves, structure = jax.tree_util.tree_flatten_with_path(kept)
    wanted = {mismatch.path_text(place): leaf for place, leaf in leaves}
    found = read_arrays(path, wanted)
    read = dict.fromkeys(parts) | jax.tree.unflatten(structure, [found[place] for place in wanted])
    return template._replace(**read) if hasattr(template, "_replace") else type(template)(read)


@contextlib.contextmanager
def _calling_it_damaged(path: epath.Path) -> Iterator[None]:
    """Orbax and TensorStore raise whatever their storage layer met; parts and shapes are known to be right by then."""
    try:
        yield
    except Exception as error:
        if "permission denied" in str(error).lower():
            raise ConfigError(_not_permitted(path, error)) from error
        if is_shortage(error):
            error.add_note(f"while reading {path}")
            raise
        raise DamagedCheckpoint(f"{path}: damaged, it can't be read: {cause_of(error)}") from error


def _not_permitted(path: epath.Path, error: Exception) -> str:
    return f"{path}: may not be read by this user; change its permissions, or move it away: {cause_of(error)}"
