"""What pipelines over files have in common: how files are named and found."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import glob
import os
from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar

from kauldron_core.data.prefetching import PrefetchingPipeline
from kauldron_core.data.py import numbered
from kauldron_core.data.records import Records
from kauldron_core.data.stored import StoredPipeline
from kauldron_core.errors import ConfigError, first_line

_LASTING = (FileNotFoundError, IsADirectoryError, PermissionError)

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclasses.dataclass(frozen=True)
class FilePipeline(StoredPipeline, PrefetchingPipeline):
    """Base of pipelines over files.

    Attributes:
      path: A file, a folder (all files in it with the format's suffix), a pattern with `*`, or several of these. The
        order of the records is that of the paths; those that a folder or pattern gives are sorted.
      allow_partial: Whether files of a numbered set (`part-00000-of-00004`) may be missing; without, that is an error.
        A pattern that leaves some out, and a list of some while the others are there, need no permission.
    """

    path: Paths
    allow_partial: bool = dataclasses.field(default=False, kw_only=True)

    suffix: ClassVar[str]

    def _source_key(self) -> Hashable:
        return tuple(self._listed()), self.allow_partial

    def _listed(self) -> list[str]:
        paths = [self.path] if isinstance(self.path, (str, os.PathLike)) else self.path
        return [os.fspath(path) for path in paths]

    def _open_records(self) -> Records:
        files = find_files(self._listed(), self.suffix)
        if not (self.allow_partial or self._is_one_file()):
            require_whole_sets(self._listed(), self.suffix)
        return self._open_files(files)

    def _is_one_file(self) -> bool:
        return isinstance(self.path, (str, os.PathLike)) and os.path.isfile(self.path)

    @abc.abstractmethod
    def _open_files(self, files: list[str]) -> Records:
        """Returns the records of `files`, all of which exist."""


def find_files(paths: Sequence[str], suffix: str) -> list[str]:
    """Returns the files that `paths` name.

    Raises:
      ConfigError: If some of them name none, if files of two sets lie together, or if files are empty.
    """
    found = {path: _found(path, suffix) for path in paths}
    if missing := [path for path in found if not found[path]]:
        raise ConfigError(
            f"no file {', '.join(map(repr, missing))}, nor files that it stands for (folders: *{suffix})."
        )
    files = [file for path in paths for file in found[path]]
    if mixed := numbered.mixed_sets(files):
        raise ConfigError(mixed)
    if empty := [file for file in files if os.path.isfile(file) and not os.path.getsize(file)]:
        raise ConfigError(f"{len(empty)} of {len(files)} files are empty (0 bytes): {numbered.names_in_folder(empty)}.")
    return files


def require_whole_sets(paths: Sequence[str], suffix: str) -> None:
    """Checks that no file is missing of the numbered sets that `paths` mean.

    Raises:
      ConfigError: If there are, with all of them.
    """
    missing = numbered.missing_files(filter(os.path.isfile, paths), None)
    for path in paths:
        if not os.path.isfile(path):
            pattern = f"*{suffix}" if os.path.isdir(path) else path
            missing += numbered.missing_files(_found(path, suffix), pattern)
    if missing := list(dict.fromkeys(missing)):
        names = numbered.names_in_folder(missing)
        raise ConfigError(f"{len(missing)} files are missing: {names}. What is there alone: allow_partial=True.")


@contextlib.contextmanager
def reading(file: str) -> Iterator[None]:
    """Names `file` in what is wrong with it.

    Raises:
      ConfigError: For whatever a reader of the format raises. What may pass, as a network's error, keeps its type.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # Each library has kinds of its own, of which few name the file.
        if isinstance(error, OSError) and error.errno and not isinstance(error, _LASTING):
            error.add_note(f"while reading {file}")
            raise
        cause = first_line(error).removesuffix(": ")
        raise ConfigError(f"{file}: cannot be read, it may be cut or damaged ({cause}).") from error


def _found(path: str, suffix: str) -> list[str]:
    if os.path.isdir(path):
        return sorted(glob.glob(os.path.join(glob.escape(path), f"*{suffix}")))
    return [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
