"""`JsonLines`: files with one JSON object a line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from kauldron_core.data.py.files import FilePipeline, reading
from kauldron_core.data.records import Records


@dataclasses.dataclass(frozen=True)
class JsonLines(FilePipeline):
    """Pipeline over files with one JSON object a line; empty lines are skipped.

    Numbers are int64 and float64, lists of numbers arrays, text stays text. Only where the lines begin is kept in
    memory.
    """

    suffix: ClassVar[str] = ".jsonl"

    def _open_files(self, files: list[str]) -> Records:
        return LineRecords(files)


class LineRecords(Records):
    """The lines of files, read one by one."""

    def __init__(self, files: Sequence[str]):
        self._files = files
        starts = [_line_starts(file) for file in files]
        self._starts = np.concatenate(starts)
        self._file = np.repeat(np.arange(len(files)), [len(part) for part in starts])

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, numbers: np.ndarray) -> list[Any]:
        records: list[Any] = [None] * len(numbers)
        for file in np.unique(self._file[numbers]):
            # Opened for each batch, so that threads and worker processes share no position in it.
            with open(self._files[int(file)], "rb") as opened:
                for row in np.flatnonzero(self._file[numbers] == file):
                    opened.seek(int(self._starts[numbers[row]]))
                    records[row] = self._parsed(opened.readline(), int(numbers[row]))
        return records

    def _parsed(self, line: bytes, number: int) -> Any:
        with reading(f"{self._files[int(self._file[number])]}, record {number}"):
            return _as_arrays(json.loads(line))


def _line_starts(file: str) -> np.ndarray:
    starts, position, last = [], 0, b"{}"
    with reading(file), open(file, "rb") as opened:
        for line in opened:
            if line.strip():
                starts.append(position)
                last = line
            position += len(line)
        json.loads(last)  # A file that was cut ends in the middle of a line.
    return np.array(starts, np.int64)


def _as_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_arrays(entry) for key, entry in value.items()}
    if isinstance(value, list) and not any(isinstance(entry, (dict, str)) or entry is None for entry in value):
        return np.array(value)
    return value
