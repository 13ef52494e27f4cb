"""Compiled programs that outlive their process: in the user's own cache folder, never in or beside a run.

A program is native code, so none is loaded that came with a run directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import platform as machine
from typing import Any

MAX_BYTES = 4 * 1024**3
"""What the programs of one kind of machine may take; each process that starts removes the oldest above it."""

_FOLDER_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
# Small programs too: a sweep's trials are many and short, and a restarted one must not compile again.
_OPTIONS = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}


def use_program_cache(jax: Any, platform: str) -> None:
    """Lets this process keep its compiled programs, and take those of earlier ones; JAX's own variables win.

    Args:
      jax: JAX.
      platform: The platform that it runs on.
    """
    for name, value in _OPTIONS.items():
        if name.upper() not in os.environ:
            jax.config.update(name, value)
    if _FOLDER_VARIABLE in os.environ:
        return
    folder = private_folder("programs", machine_kind(platform))
    if folder is not None:
        _prune(folder)
        jax.config.update("jax_compilation_cache_dir", os.fspath(folder))


def private_folder(*parts: str) -> pathlib.Path | None:
    """Returns a folder in the user's cache that nobody else may look into or write; None where there can be none.

    It lies in `$XDG_CACHE_HOME/kauldron-ray`, by default `~/.cache/kauldron-ray`.
    """
    root = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = pathlib.Path(root) if os.path.isabs(root) else pathlib.Path.home() / ".cache"
        own = base / "kauldron-ray"
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        if own.is_symlink() or own.stat().st_uid != os.geteuid():
            return None  # Somebody else has made it, and could put a program of theirs there.
        own.chmod(0o700)
        folder = own.joinpath(*parts)
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # No home, or none that can be written.
        return None
    return folder


def _prune(folder: pathlib.Path) -> None:
    """Removes the programs that were made first, above `MAX_BYTES`.

    JAX has a bound of its own, for which it takes a lock and looks at every file whenever a program is read or written;
    with thousands of small programs that costs more than they do.
    """
    found: list[tuple[float, int, str]] = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # Another process is at the same.
            status = entry.stat(follow_symlinks=False)
            found.append((status.st_mtime, status.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= MAX_BYTES:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size


def machine_kind(platform: str) -> str:
    """Returns a name that differs where a compiled CPU program of one node could not run on another."""
    if platform != "cpu":
        return platform
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"cpu-{machine.machine()}"
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"cpu-{machine.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"
