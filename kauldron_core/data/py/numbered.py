"""Numbered files, `part-00000-of-00004.parquet`: what is missing of the sets that a user means."""

from __future__ import annotations

import collections
import fnmatch
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_NUMBERED = re.compile(r"(?P<stem>.*-)(?P<number>\d+)-of-(?P<total>\d+)(?P<rest>[^/]*)", re.DOTALL)


class NumberedFile(NamedTuple):
    """The parts of `STEM-NUMBER-of-TOTALREST`, text as it stands in the name."""

    stem: str
    number: str
    total: str
    rest: str

    def sibling(self, number: int) -> str:
        """Returns the name of another file of this set."""
        return f"{self.stem}{number:0{len(self.number)}d}-of-{self.total}{self.rest}"

    def siblings(self) -> list[str]:
        """Returns the names of all files of this set; the first has number 0, or 1 where the last says so."""
        total = int(self.total)
        first = int(os.path.exists(self.sibling(total)) and not os.path.exists(self.sibling(0)))
        return [self.sibling(number) for number in range(first, total + first)]


def mixed_sets(files: Iterable[str]) -> str | None:
    """Complaint about files of one name that come from sets of different sizes, None if there are none."""
    totals: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for part in _numbered(files):
        totals[part.stem, part.rest].add(part.total)
    for (stem, rest), found in totals.items():
        if len(found) > 1:
            sets = " and ".join(repr(f"{stem}*-of-{total}{rest}") for total in sorted(found))
            return f"{sets} are two sets, and only one of them can be meant. Name it as the path."
    return None


def missing_files(files: Iterable[str], pattern: str | None) -> list[str]:
    """Returns the files that are missing of the sets that `files` belong to.

    Args:
      files: Files that exist.
      pattern: The pattern that gave them: what it leaves out is not missed. None where there was none.
    """
    sets = dict.fromkeys(part._replace(number="0" * len(part.number)) for part in _numbered(files))
    names = [name for part in sets for name in part.siblings()]
    if pattern is not None:
        names = [name for name in names if fnmatch.fnmatchcase(os.path.basename(name), os.path.basename(pattern))]
    return [name for name in names if not os.path.exists(name)]


def names_in_folder(files: Sequence[str]) -> str:
    """Returns `files` in one line, the folder once where they lie in one."""
    folders = {os.path.dirname(file) for file in files}
    if len(folders) > 1:
        return ", ".join(files)
    return f"{', '.join(map(os.path.basename, files))} (in {folders.pop() or os.curdir})"


def _numbered(files: Iterable[str]) -> Iterable[NumberedFile]:
    matches = (_NUMBERED.fullmatch(file) for file in files)
    return (NumberedFile(**match.groupdict()) for match in matches if match)
