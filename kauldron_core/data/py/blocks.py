"""Records that lie in blocks (row groups, record batches), a few of which are in memory at a time."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kauldron_core.data.order import BlockShuffled, Order
from kauldron_core.data.py.columns import StoredColumn, column_rows, scattered, stacked, stored_columns, take
from kauldron_core.data.records import Records
from kauldron_core.data.transforms.apply import transform_columns

if TYPE_CHECKING:
    import pyarrow as pa


class Block(NamedTuple):
    """A part of a file that is read as a whole.

    Attributes:
      num_rows: Records in it.
      num_bytes: What it takes in memory.
      load: Reads it.
    """

    num_rows: int
    num_bytes: int
    load: Callable[[], pa.Table]


class BlockRecords(Records):
    """Records of blocks, in their order.

    Args:
      blocks: The blocks.
      window: Bytes of blocks over which a shuffle reaches. Twice as much is kept, for the change from one window to
        the next.
    """

    is_columnar = True

    def __init__(self, blocks: Sequence[Block], *, window: int):
        self._blocks = blocks
        self._sizes = np.array([block.num_rows for block in blocks], np.int64)
        self._costs = np.array([block.num_bytes for block in blocks], np.int64)
        self._ends = np.cumsum(self._sizes)
        self._window = window
        self._loaded: collections.OrderedDict[int, dict[str, StoredColumn]] = collections.OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._sizes.sum())

    def read(self, numbers: np.ndarray) -> list[Any]:
        return column_rows(self._columns(numbers), len(numbers))

    def read_batch(self, numbers: np.ndarray, selections: Sequence[Any]) -> Any:
        return stacked(transform_columns(selections, self._columns(numbers)))

    def _columns(self, numbers: np.ndarray) -> Any:
        """Returns the records with these numbers, in this order, as columns."""
        blocks = np.searchsorted(self._ends, numbers, side="right")
        parts = []
        for block in np.unique(blocks):
            rows = np.flatnonzero(blocks == block)
            within = numbers[rows] - (self._ends[block] - self._sizes[block])
            parts.append((rows, take(self._block(int(block)), within)))
        return scattered(parts, len(numbers))

    def _block(self, number: int) -> dict[str, StoredColumn]:
        with self._lock:
            if number not in self._loaded:
                self._make_room(int(self._costs[number]))
                self._loaded[number] = stored_columns(self._blocks[number].load())
            self._loaded.move_to_end(number)
            return self._loaded[number]

    def _make_room(self, cost: int) -> None:
        while self._loaded and self._costs[list(self._loaded)].sum() + cost > 2 * self._window:
            self._loaded.popitem(last=False)

    def shuffled(self, seed: int, survivors: np.ndarray | None) -> Order:
        sizes = self._sizes
        if survivors is not None:
            sizes = np.diff(np.searchsorted(survivors, self._ends), prepend=0)
        return BlockShuffled(sizes, self._costs, window=self._window, seed=seed)
