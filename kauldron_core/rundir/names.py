"""Names that become folders: trials, evaluators, event writers."""

from __future__ import annotations

import os
import pathlib
import re

from kauldron_core.errors import ConfigError

MAX_NAME_BYTES = 200  # File systems take 255; suffixes and temporary names need a few.
_MAX_PART_BYTES = 255
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # One slash: a path object has dropped the second one.


def check_name(name: str, *, kind: str = "name", at: str = "") -> str:
    """Returns `name` if it can be one folder or file name everywhere.

    Args:
      name: The name to look at.
      kind: What it names (`trial`, `evaluator`), for the message.
      at: Config path or flag where it was written.

    Raises:
      ConfigError: If it can't; the message says why and gives a name that would do.
    """
    refuse_address(name, at=at)
    found = fault(name)
    if found is None:
        return name
    place = f"{at}: " if at else ""
    raise ConfigError(f"{place}{kind} name {name!r} {found}. Usable: {_usable(name)!r}.")


def refuse_address(path: str | os.PathLike[str], *, at: str = "") -> None:
    """Refuses the address of a bucket (`gs://...`) where a run lies, which would become a folder called `gs:`.

    Raises:
      ConfigError: If it is one.
    """
    text = os.fspath(path)
    if _SCHEME.match(text):
        place = f"{at}: " if at else ""
        raise ConfigError(
            f"{place}{text!r} is an address; runs in a bucket are not supported yet, checkpoints and data may be."
            " Give a folder, such as runs."
        )


def local_path(path: str | os.PathLike[str], *, at: str = "") -> pathlib.Path:
    """Returns `path` as a user wrote it, with the home folder in the place of `~`.

    Raises:
      ConfigError: If it is the address of a bucket, or the home of nobody.
    """
    refuse_address(path, at=at)
    return with_home(path, at=at)


def with_home(path: str | os.PathLike[str], *, at: str = "") -> pathlib.Path:
    """Returns `path` with the home folder in the place of `~`.

    Raises:
      ConfigError: If it is the home of nobody, or no file system takes so long a name.
    """
    longest = max((len(os.fsencode(part)) for part in pathlib.PurePath(path).parts), default=0)
    if longest > _MAX_PART_BYTES:
        what = f"{os.fspath(path)[:40]!r}... is longer than a name can be"
        raise ConfigError(f"{f'{at}: ' if at else ''}{what}: {longest} bytes, at most {_MAX_PART_BYTES}.")
    try:
        return pathlib.Path(path).expanduser()
    except RuntimeError as error:
        place = f"{at}: " if at else ""
        raise ConfigError(f"{place}{os.fspath(path)!r} starts with the home of a user who is not there.") from error


def check_path(path: str | os.PathLike[str], *, at: str = "") -> pathlib.Path:
    """Returns `path` if checkpoints can lie below it: Orbax reads `*`, `?` and brackets in a path as wildcards.

    Raises:
      ConfigError: If it holds one of them.
    """
    text = os.fspath(path)
    wildcard = next((letter for letter in text if letter in "*?[]"), None)
    if wildcard is not None:
        place = f"{at}: " if at else ""
        usable = "".join("-" if letter in "*?[]" else letter for letter in text)
        raise ConfigError(f"{place}the path {text!r} holds {wildcard!r}, a wildcard to Orbax. Usable: {usable!r}.")
    return pathlib.Path(path)


def fault(name: str) -> str | None:
    """Returns why a text can't be one folder or file name everywhere, as a verb; None if it can."""
    if not name or not name.strip():
        return "is empty"
    if name[0] == ".":
        return "starts with a dot"
    if name != name.strip():
        return "starts or ends with a space"
    if not name.isprintable():
        return "holds an unprintable character"
    bad = next((letter for letter in name if letter in "/\\"), None)
    if bad:
        return f"holds {bad!r} and would leave its folder"
    if len(name.encode(errors="replace")) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes"
    return None


def _usable(name: str) -> str:
    kept = "".join("-" if letter in "/\\" or not letter.isprintable() else letter for letter in name)
    shortened = kept.strip().lstrip(".-").encode(errors="replace")[:MAX_NAME_BYTES].decode(errors="ignore")
    return shortened.strip() or "unnamed"


def to_pointer(path: str | os.PathLike[str], *, inside: str | os.PathLike[str]) -> str:
    """Returns `path` relative to the folder `inside`, as files of a run directory write it, so that it can move.

    Raises:
      ValueError: If `path` is not inside.
    """
    return pathlib.Path(os.path.abspath(path)).relative_to(os.path.abspath(inside)).as_posix()


def from_pointer(pointer: str, *, inside: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the path that `pointer` means in the folder `inside`.

    Raises:
      ValueError: If it is absolute or leads out of the folder.
    """
    parts = pathlib.PurePosixPath(pointer)
    if parts.is_absolute() or ".." in parts.parts:
        raise ValueError(f"{pointer!r} leads out of {os.fspath(inside)}")
    return pathlib.Path(inside) / parts
