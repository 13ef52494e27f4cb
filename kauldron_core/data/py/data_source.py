"""`DataSource`: any source with `__len__` and `__getitem__`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from kauldron_core.data.prefetching import PrefetchingPipeline
from kauldron_core.data.records import Records
from kauldron_core.data.shared import SameObject
from kauldron_core.data.stored import StoredPipeline
from kauldron_core.errors import ConfigError


class RandomAccessSource(Protocol):
    """What a user brings: a list, a TFDS or HuggingFace data set, a Grain source."""

    def __len__(self) -> int: ...

    def __getitem__(self, record: int, /) -> Any: ...


class SourceRecords(Records):
    """Records of a random-access source."""

    def __init__(self, source: RandomAccessSource):
        self._source = source
        # TFDS and HuggingFace read many records at once under this name.
        self._read_many = getattr(source, "__getitems__", None)

    def __len__(self) -> int:
        return len(self._source)

    def read(self, numbers: np.ndarray) -> list[Any]:
        if self._read_many is not None:
            return list(self._read_many(numbers.tolist()))
        return [self._source[number] for number in numbers.tolist()]


@dataclasses.dataclass(frozen=True)
class DataSource(StoredPipeline, PrefetchingPipeline):
    """Pipeline over a random-access source.

    Attributes:
      data_source: The source (a list, a TFDS or HuggingFace data set, a Grain source, ...), or a function without
        arguments that opens it. Only the latter is safe where making the source reads files: a config is resolved
        also where the data is not.
    """

    # A list of records would print all of them.
    data_source: RandomAccessSource | Callable[[], RandomAccessSource] = dataclasses.field(repr=False)

    def _source_key(self) -> SameObject:
        return SameObject(self.data_source)

    def _open_records(self) -> Records:
        source: Any = self.data_source
        if isinstance(source, type) or (callable(source) and not hasattr(source, "__getitem__")):
            source = source()
        if not (hasattr(source, "__getitem__") and hasattr(source, "__len__")):
            raise ConfigError(f"data_source is {source!r}, which has no __len__ and __getitem__.")
        return SourceRecords(source)  # pyright: ignore[reportArgumentType]  (just checked)
