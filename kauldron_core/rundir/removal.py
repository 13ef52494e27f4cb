"""Removes what lies in a run: nothing outside of it, and nothing that a link leads to.

A run directory may itself be reached by a link; what lies in it may not lead out of it. Whoever lists trials or packs
leaves links out, and whoever is to write below a run refuses it first where one leads out (`refuse_links`).
"""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Iterator

from kauldron_core.errors import ConfigError

_CHECKPOINT = "ckpt_"
"""What the names of checkpoints begin with; what lies in one is Orbax's, and no file is written there later."""


def remove(path: str | os.PathLike[str], *, inside: str | os.PathLike[str]) -> None:
    """Removes a file, a folder with all that is in it, or a link, whose target stays; nothing where there is none.

    Args:
      path: What is to go.
      inside: The folder of the run or trial that it lies in.

    Raises:
      ConfigError: If it does not lie in there by its name, or only by a link on the way. Nothing is removed then.
    """
    place = check_inside(path, inside=inside)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def check_inside(path: str | os.PathLike[str], *, inside: str | os.PathLike[str]) -> pathlib.Path:
    """Returns `path` if it lies below the folder `inside`, by its name and without a link on the way.

    Raises:
      ConfigError: If it does not.
    """
    root, place = pathlib.Path(inside).absolute(), pathlib.Path(path).absolute()
    if not place.is_relative_to(root) or place == root or ".." in place.relative_to(root).parts:
        raise ConfigError(f"{place}: does not lie in {root}, so it is left alone.")
    for folder in place.parents:
        if folder == root:
            return place
        if folder.is_symlink():
            raise ConfigError(f"{folder}: is a link, and what it leads to is left alone.")
    return place


def refuse_links(run: str | os.PathLike[str]) -> None:
    """Refuses a run, or a trial, in which a link leads out: what is written or sent below it would be another's.

    Raises:
      ConfigError: With the first such link.
    """
    root = os.path.realpath(run)
    for entry in _links(root):
        if not os.path.realpath(entry.path).startswith(root + os.sep):
            raise ConfigError(
                f"{entry.path}: is a link that leads out of {root}. Put what it leads to there, or remove it."
            )


def _links(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yields the links below a folder, what lies in checkpoints left out; no link is followed."""
    try:
        entries = list(os.scandir(folder))
    except OSError:  # It has gone meanwhile, or may not be looked into; then nothing is written there either.
        return
    for entry in entries:
        if entry.is_symlink():
            yield entry
        elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith(_CHECKPOINT):
            yield from _links(entry.path)
