"""Trust that comes from the place of a file: the user's own project, outside of any run directory.

A run directory is data that may come from elsewhere, code copies in it included; so is a library below the project.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pathlib
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from typing import Any

COPY_PREFIX = "kdr_config_"
"""What the modules are called that config files outside of any package are copied to, in `RUN/code`."""

_LIBRARY_FOLDERS = frozenset({"site-packages", "dist-packages"})


def working_folder() -> str | None:
    """Returns the working directory, or None when it is (part of) a run directory or does not exist."""
    try:
        folder = os.path.realpath(os.getcwd())
    except OSError:
        return None
    return None if is_in_run(folder) else folder


def listed_packages() -> tuple[str, ...]:
    """Returns the packages under `[tool.kdr] trust` in the working directory's pyproject.toml."""
    folder = working_folder()
    if folder is None:
        return ()
    file = pathlib.Path(folder, "pyproject.toml")
    try:
        return _read_packages(file, file.stat().st_mtime_ns)
    except OSError:
        return ()


@functools.lru_cache(maxsize=8)
def _read_packages(file: pathlib.Path, changed_ns: int) -> tuple[str, ...]:
    import tomllib  # Loaded on use: most processes never read a pyproject.toml here.

    try:
        data: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return ()
    listed: Any = data.get("tool", {}).get("kdr", {}).get("trust", [])
    return tuple(name for name in listed if isinstance(name, str)) if isinstance(listed, list) else ()  # pyright: ignore[reportUnknownVariableType]


def is_of_project(module: str, folders: tuple[str, ...]) -> bool:
    """Returns whether a module's file lies in the working directory or one of `folders`, outside of run directories.

    Nothing is imported to find out, except packages above the module that are of the project themselves.
    """
    own = working_folder()
    allowed = (*folders, *([own] if own else []))
    parts = module.split(".")
    return bool(allowed) and all(
        _lies_in(_spec(".".join(parts[:length])), allowed) for length in range(1, len(parts) + 1)
    )


def code_of_run(run: str | os.PathLike[str]) -> tuple[str, ...]:
    """Returns the names of the copies of config files in a run directory's `code` folder; nothing else counts there."""
    found = (file.stem for file in pathlib.Path(run, "code").glob(f"{COPY_PREFIX}*.py"))
    return tuple(sorted(name for name in found if name.isidentifier()))


def _spec(module: str) -> ModuleSpec | None:
    loaded = sys.modules.get(module)
    if loaded is not None and getattr(loaded, "__spec__", None) is not None:
        return loaded.__spec__
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None


def _lies_in(spec: ModuleSpec | None, folders: Iterable[str]) -> bool:
    if spec is None:
        return False
    if spec.origin is not None and not spec.has_location:
        return False  # Built into the interpreter.
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return bool(places) and all(_is_project_file(place, folders) for place in places)


def _is_project_file(place: str, folders: Iterable[str]) -> bool:
    file = os.path.realpath(place)
    is_inside = any(_is_below(file, folder) for folder in folders)
    return is_inside and not _is_library(file) and not is_in_run(os.path.dirname(file))


def _is_below(file: str, folder: str) -> bool:
    return file.startswith(folder.rstrip(os.sep) + os.sep)


def _is_library(file: str) -> bool:
    """Whether a file belongs to Python or an installed package (a `.venv` often lies in the project)."""
    return bool(_LIBRARY_FOLDERS & set(pathlib.PurePath(file).parts)) or any(
        _is_below(file, folder) for folder in _library_folders()
    )


@functools.cache
def _library_folders() -> tuple[str, ...]:
    import sysconfig  # Loaded on use: only names that a file holds, and that no list knows, get here.

    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({os.path.realpath(sysconfig.get_path(name)) for name in names})


def is_in_run(folder: str | os.PathLike[str]) -> bool:
    """Returns whether a folder is a run directory, or lies in one."""
    path = pathlib.Path(os.path.realpath(folder))
    return any(_is_run(place) for place in (path, *path.parents))


def _is_run(place: pathlib.Path) -> bool:
    is_trial = (place / "config.json").is_file() and any((place / name).exists() for name in _TRIAL_MARKS)
    return is_trial or (place / "sweep.json").exists()


_TRIAL_MARKS = ("checkpoints", "events", "status.json")
