"""Packing: several short examples in the rows of one, so that little of a batch is padding.

Which examples share a row follows from the stored order alone, and is found out when the data is opened. So the number
of rows is known, an epoch holds every example once, and rows are shuffled, sharded and resumed like any records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kauldron_core.data.order import Order
from kauldron_core.data.records import Records
from kauldron_core.data.transforms.apply import RecordOrigin, is_packing, transform_record

# Rows that are not full yet and may still take an example. More would leave less padding, by less and less.
_OPEN_ROWS = 32
# Records read at a time to learn their lengths.
_CHUNK = 256


def packing_step(transforms: Sequence[Any]) -> int | None:
    """Returns which of the transforms packs, None if none does."""
    return next((step for step, transform in enumerate(transforms) if is_packing(transform)), None)


class PackedRecords(Records):
    """Rows of packed records.

    Args:
      records: What is packed.
      transforms: The deterministic steps before, and the packing one last.
      survivors: Numbers of the records that filters keep, None for all.
    """

    def __init__(self, records: Records, transforms: Sequence[Any], survivors: np.ndarray | None):
        self._records = records
        self._transforms = transforms[:-1]
        self._pack = transforms[-1]
        numbers = np.arange(len(records)) if survivors is None else survivors
        rows = first_fit(self._lengths(numbers), self._pack.lengths)
        self._rows = [numbers[row] for row in rows]

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, numbers: np.ndarray) -> list[Any]:
        rows = [self._rows[number] for number in numbers.tolist()]
        # Read together: a store that reads many at once does so once a batch.
        elements = iter(self._transformed(np.concatenate(rows)))
        return [self._pack.pack([next(elements) for _ in row]) for row in rows]

    def _transformed(self, numbers: np.ndarray) -> list[Any]:
        elements = zip(self._records.read(numbers), numbers.tolist(), strict=True)
        return [
            transform_record(self._transforms, element, RecordOrigin(None, 0, number)) for element, number in elements
        ]

    def _lengths(self, numbers: np.ndarray) -> list[Mapping[str, int]]:
        lengths = []
        for start in range(0, len(numbers), _CHUNK):
            chunk = numbers[start : start + _CHUNK]
            for number, element in zip(chunk.tolist(), self._transformed(chunk), strict=True):
                try:
                    lengths.append(self._pack.lengths_of(element))
                except Exception as error:
                    error.add_note(f"in {self._pack!r}, of record {number}")
                    raise
        return lengths

    def shuffled(self, seed: int, survivors: np.ndarray | None) -> Order:
        del survivors  # Filters come before, and have been applied.
        # A store shuffled by blocks sees the first record of each row; the others are close to it.
        return self._records.shuffled(seed, np.array([row[0] for row in self._rows], np.int64))


def first_fit(lengths: Sequence[Mapping[str, int]], capacity: Mapping[str, int]) -> list[np.ndarray]:
    """Returns which examples share a row: each goes into the first open row that has room for it.

    Args:
      lengths: Of each example, by entry; none above `capacity`.
      capacity: Of a row.

    Returns:
      Places in `lengths`, for each row; the rows are in the order of their first examples.
    """
    rows: list[list[int]] = []
    room: list[dict[str, int]] = []
    is_open: list[int] = []
    for place, needed in enumerate(lengths):
        row = next((row for row in is_open if all(room[row][key] >= needed[key] for key in capacity)), None)
        if row is None:
            row = len(rows)
            rows.append([])
            room.append(dict(capacity))
            is_open = [*is_open[-_OPEN_ROWS + 1 :], row]
        rows[row].append(place)
        for key in capacity:
            room[row][key] -= needed[key]
    return [np.array(row) for row in rows]
