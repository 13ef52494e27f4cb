"""Checksums of a checkpoint's files: Orbax and TensorStore read a flipped bit in an array without a word."""

from __future__ import annotations

import errno
import json
import zlib

from etils import epath

from kauldron_core import rundir
from kauldron_core.ckpts import layout
from kauldron_core.ckpts.storage_errors import is_shortage

FILE = "checksums.json"
_PIECE = 1 << 22
NO_FILE = "is no file"


def write(folder: epath.Path) -> None:
    """Adds the checksums of all files in the finished, not yet renamed `folder`; not on object stores."""
    if "://" in str(folder):
        return  # It would have to be downloaded again, and such stores check for themselves.
    sums = {name: _checksum(folder / name) for name in _files(folder)}
    (folder / FILE).write_text(json.dumps(sums))


def differences(path: epath.Path) -> list[str]:
    """Changes in the files of a checkpoint since it was saved, one line a file."""
    try:
        saved: dict[str, int] = layout.read_json(path / FILE, rundir.formats.CHECKSUMS)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        if is_shortage(error):
            raise
        return [f"{FILE}: can't be read"]
    found: list[str] = []
    for name, checksum in saved.items():
        try:
            if _checksum(path / name) != checksum:
                found.append(f"{name}: other bytes than were saved")
        except OSError as error:
            found.append(f"{name}: {error.strerror or error}")
    return found


def _files(folder: epath.Path) -> list[str]:
    """Returns the files below the parts of a checkpoint; what Orbax has at its top it goes on writing."""
    names: list[str] = []
    pending = [part for part in layout.PARTS if (folder / part).exists()]
    while pending:
        name = pending.pop()
        if (folder / name).is_dir():
            pending += [f"{name}/{child.name}" for child in (folder / name).iterdir()]
        else:
            names.append(name)
    return sorted(names)


def _checksum(path: epath.Path) -> int:
    checksum = 0
    if path.exists() and not layout.is_file(path):  # A pipe would have to be waited for.
        raise OSError(errno.EINVAL, NO_FILE)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            checksum = zlib.crc32(piece, checksum)
    return checksum
