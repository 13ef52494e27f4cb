"""Puts the user's own project on Python's path: the working directory, first, as `python -m` has it.

A console script and a Ray worker lack it. First and not last, so that a module has one name and one file in every
process; a file of the user's hides a library no more than it does under `python -m`.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.trusting.project_trust import working_folder
from kauldron_core.konfig.trusting.trust_lists import OWN_PACKAGES

_HOME = Path(__file__).resolve().parents[3]


def project_folder(root: str | os.PathLike[str] | None = None) -> str | None:
    """Returns the folder to put on the path; None where there is no project, or Python was told to leave it out.

    A run directory is data and no project, and a copy of our own sources is no project of the user's.

    Args:
      root: The folder that is meant; the working directory by default.

    Raises:
      ConfigError: When a module in it has the name of one of our packages.
    """
    folder = working_folder() if root is None else os.path.realpath(root)
    if folder is None or sys.flags.safe_path or is_copy_of_ours(folder):
        return None
    refuse_hiding(folder, "the working directory")
    return folder


def add_project(root: str | os.PathLike[str] | None = None) -> None:
    """Makes the modules of the working directory, or of `root`, importable in this process.

    Raises:
      ConfigError: As for `project_folder`.
    """
    folder = project_folder(root)
    if folder is not None and folder not in sys.path:
        sys.path.insert(0, folder)
        importlib.invalidate_caches()


def refuse_hiding(folder: str | os.PathLike[str], at: str) -> None:
    """Refuses a folder that comes first on the path and has modules named like our packages.

    Args:
      folder: The folder.
      at: What it is, or which option names it.

    Raises:
      ConfigError: With the first of them.
    """
    hiding = [] if is_copy_of_ours(folder) else _own_names_in(Path(folder))
    if hiding:
        raise ConfigError(
            f"{at}: {hiding[0]} hides the package {hiding[0].stem!r} that kdr itself is made of. Rename it."
            f" Names that are taken: {', '.join(OWN_PACKAGES)}."
        )


def is_copy_of_ours(folder: str | os.PathLike[str]) -> bool:
    """Returns whether a folder holds another copy of all our packages: a clone beside an installation."""
    return Path(folder).resolve() != _HOME and len(_own_names_in(Path(folder))) == len(OWN_PACKAGES)


def _own_names_in(folder: Path) -> list[Path]:
    """Returns what in a folder would be imported in place of our packages; a folder without `__init__.py` is not."""
    if folder.resolve() == _HOME:
        return []
    places = (folder / file for name in OWN_PACKAGES for file in (name, f"{name}.py"))
    return [place for place in places if place.is_file() or (place / "__init__.py").is_file()]
