"""Lets the permissions of files count in a test that runs as root, who may do everything else."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_VERSION_3 = 0x20080522
_OVERRIDES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Takes the right to write from everything in `folder`, and from this thread that to write all the same."""
    with modes_bind():
        modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
        for path, mode in modes.items():
            path.chmod(mode & ~0o222)
        try:
            yield
        finally:
            for path, mode in modes.items():
                if path.exists():
                    path.chmod(mode)


@contextlib.contextmanager
def modes_bind() -> Iterator[None]:
    """Drops the capabilities of this thread by which root passes over the modes of files, and takes them back."""
    if os.geteuid() != 0:
        yield
        return
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    before, data = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    _call(libc.capget, header, before)
    ctypes.memmove(data, before, ctypes.sizeof(before))
    data[0] &= ~_OVERRIDES  # The effective ones; the permitted ones stay, so that they can come back.
    _call(libc.capset, header, data)
    try:
        yield
    finally:
        _call(libc.capset, header, before)


def _call(function: Callable[..., int], header: Any, data: Any) -> None:
    if function(ctypes.byref(header), ctypes.byref(data)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
