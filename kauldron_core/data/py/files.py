"""What pipelines over files have in common: how files are named and found."""

from __future__ import annotations

import abc
import dataclasses
import glob
import os
from collections.abc import Hashable, Sequence
from typing import ClassVar

from kauldron_core.data.ordered import Records
from kauldron_core.data.prefetching import PrefetchingPipeline
from kauldron_core.data.stored import StoredPipeline
from kauldron_core.errors import ConfigError

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclasses.dataclass(frozen=True)
class FilePipeline(StoredPipeline, PrefetchingPipeline):
    """Base of pipelines over files.

    Attributes:
      path: A file, a folder (all files in it with the format's suffix), a pattern with `*`, or several of these. The
        order of the records is that of the paths; those that a folder or pattern gives are sorted.
    """

    path: Paths

    suffix: ClassVar[str]

    def _source_key(self) -> Hashable:
        return tuple(self._listed())

    def _listed(self) -> list[str]:
        paths = [self.path] if isinstance(self.path, (str, os.PathLike)) else self.path
        return [os.fspath(path) for path in paths]

    def _open_records(self) -> Records:
        return self._open_files(find_files(self._listed(), self.suffix))

    @abc.abstractmethod
    def _open_files(self, files: list[str]) -> Records:
        """Returns the records of `files`, all of which exist."""


def find_files(paths: Sequence[str], suffix: str) -> list[str]:
    """Returns the files that `paths` name.

    Raises:
      ConfigError: If one of them names none.
    """
    files = []
    for path in paths:
        if os.path.isdir(path):
            found = sorted(glob.glob(os.path.join(glob.escape(path), f"*{suffix}")))
        else:
            found = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
        if not found:
            raise ConfigError(f"no file {path!r}, nor files that it stands for (folders: *{suffix}).")
        files += found
    return files
