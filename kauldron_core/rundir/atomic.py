"""Files that are either old or new, never half: the only way the run directory is written.

A writer fills a temporary file beside its target, syncs it, and lets one system call (`rename` or `link`) make it
visible; the folder is synced after that, so the new name survives a power cut too. Temporary files start with a
dot, which every reader of the run directory ignores.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from kauldron_core.rundir import json_text, processes

_TEMPORARY = ".tmp-"
_in_use: set[str] = set()
"""Run directories that this process works in; when one is gone it is not made again."""


def write_atomic(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Replaces `path` by `data`: a reader sees the old content or the new one, whenever the writer dies."""
    target = pathlib.Path(path)
    temporary = _write_temporary(target.parent, data)
    try:
        os.replace(temporary, target)
    except BaseException:
        _remove(temporary)
        raise
    sync_folder(target.parent)


def create_exclusive(path: str | os.PathLike[str], data: bytes | str) -> bool:
    """Creates `path` with all of `data` at once and returns True, or returns False when it exists already.

    Of several processes that try at the same time exactly one gets True.
    """
    target = pathlib.Path(path)
    temporary = _write_temporary(target.parent, data)
    try:
        return link_exclusive(temporary, target)
    finally:
        _remove(temporary)


def link_exclusive(source: pathlib.Path, target: pathlib.Path) -> bool:
    """Gives the file `source` the second name `target` and returns True, or False when that name is taken."""
    try:
        os.link(source, target)
    except FileExistsError:
        # Over NFS the answer to a link that worked can get lost; the repeated request then fails.
        if not os.path.samefile(source, target):
            return False
    sync_folder(target.parent)
    return True


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Replaces `path` atomically by `value` as indented JSON."""
    write_atomic(path, to_json_text(value))


def to_json_text(value: Any, *, indent: int | None = 2) -> str:
    """Returns `value` as strict JSON text; NumPy and JAX scalars are written as plain numbers."""
    return json_text.dumps(value, indent=indent, default=_plain) + "\n"


def make_folder(path: str | os.PathLike[str]) -> pathlib.Path:
    """Makes the folder `path` and its parents where missing, lastingly, and returns it.

    Raises:
      FileNotFoundError: If it is, or lies in, a run directory that was there when this process began to use it.
    """
    folder = pathlib.Path(path)
    if folder.is_dir():
        return folder
    if os.path.abspath(folder) in _in_use:
        raise FileNotFoundError(errno.ENOENT, "is gone; it was moved or removed while it was in use", os.fspath(folder))
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)
    return folder


def begin_use(run_dir: str | os.PathLike[str]) -> None:
    """Says that this process works in a run directory: from now on `make_folder` does not make it anew."""
    _in_use.add(os.path.abspath(run_dir))


def end_use(run_dir: str | os.PathLike[str]) -> None:
    """Takes `begin_use` back."""
    _in_use.discard(os.path.abspath(run_dir))


@contextlib.contextmanager
def in_use(run_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Does both around the block, where nobody has begun before."""
    is_own = os.path.abspath(run_dir) not in _in_use
    begin_use(run_dir)
    try:
        yield
    finally:
        if is_own:
            end_use(run_dir)


def sync_folder(folder: pathlib.Path) -> None:
    """Makes the names in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems keep names safe by themselves and refuse to sync a folder.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def temporary_path(folder: pathlib.Path) -> pathlib.Path:
    """Returns a new name in `folder` which no reader looks at and no other writer uses."""
    return folder / f"{_TEMPORARY}{_machine()}-{os.getpid()}-{os.urandom(6).hex()}"


def try_writing(folder: str | os.PathLike[str]) -> OSError | None:
    """Error of the system that keeps a new file out of `folder`, None if there can be one."""
    try:
        _remove(_write_temporary(pathlib.Path(folder), b""))
    except OSError as error:
        return error
    return None


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of `data`, however the system splits it."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def remove_temporaries(root: str | os.PathLike[str], *, older_than_s: float = 3600.0) -> int:
    """Deletes what killed writers left under `root` and returns how many files that were.

    Args:
      root: The folder to search, with all folders below but those of checkpoints, which Orbax writes.
      older_than_s: Younger files may belong to a writer at work, unless it is known to be dead.
    """
    removed = 0
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "checkpoints"]
        for name in names:
            path = pathlib.Path(folder, name)
            if name.startswith(_TEMPORARY) and (_is_orphan(name) or _age_s(path) > older_than_s):
                _remove(path)
                removed += 1
    return removed


def _write_temporary(folder: pathlib.Path, data: bytes | str) -> pathlib.Path:
    path = temporary_path(folder)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        write_all(descriptor, data.encode() if isinstance(data, str) else data)
        os.fsync(descriptor)
    except BaseException:
        _remove(path)
        raise
    finally:
        os.close(descriptor)
    return path


def _remove(path: pathlib.Path) -> None:
    path.unlink(missing_ok=True)


@functools.cache
def _machine() -> str:
    return hashlib.sha256(processes.machine_id().encode()).hexdigest()[:8]


def _is_orphan(name: str) -> bool:
    """Returns whether the writer of a temporary file is known to be dead."""
    parts = name.removeprefix(_TEMPORARY).split("-")
    return len(parts) == 3 and parts[0] == _machine() and parts[1].isdecimal() and not processes.exists(int(parts[1]))


def _age_s(path: pathlib.Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _plain(value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{value!r} of type {type(value).__name__} can't be written as JSON")
