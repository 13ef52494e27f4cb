"""`Parquet` and `Arrow`: tables in files, also such as are larger than memory."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from kauldron_core.data.py.blocks import Block, BlockRecords
from kauldron_core.data.py.files import FilePipeline, reading
from kauldron_core.data.records import Records
from kauldron_core.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    import pyarrow as pa

# Columns are read in pieces: whole, a block would be in memory twice while it is decoded.
_READ_BUFFER = 2**20
# Opens every message of a stream; one of no length is the end. Source: Arrow columnar format, "IPC Streaming Format".
_CONTINUATION = b"\xff\xff\xff\xff"


@dataclasses.dataclass(frozen=True)
class TablePipeline(FilePipeline):
    """Base of pipelines over tables.

    Examples are dictionaries: numbers and lists of numbers are arrays, text and bytes (of images, say) stay as they
    are, structs are dictionaries. On several hosts each of them reads all blocks and takes its share of the records.

    Attributes:
      columns: Names of the columns to read, None for all.
      fill_null: Values that stand in for missing ones, by column; without, missing values are an error.
      shuffle_window_mib: How much data is shuffled over. Blocks (row groups, record batches) come in random order, and
        the records of as many blocks as fit into the window are mixed. Twice as much may be in memory, and one block
        always is: files with a few huge blocks need memory for these.
    """

    columns: Sequence[str] | None = None
    fill_null: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    shuffle_window_mib: int = 64

    def _source_key(self) -> Hashable:
        fill = tuple(sorted((name, repr(value)) for name, value in self.fill_null.items()))
        columns = None if self.columns is None else tuple(self.columns)
        return super()._source_key(), columns, fill, self.shuffle_window_mib

    def _open_files(self, files: list[str]) -> Records:
        blocks = [block for file in files for block in self._filled_blocks(file)]
        return BlockRecords(blocks, window=self.shuffle_window_mib * 2**20)

    def _filled_blocks(self, file: str) -> list[Block]:
        with reading(file):
            return [block for block in self._blocks(file) if block.num_rows]

    @abc.abstractmethod
    def _blocks(self, file: str) -> Iterator[Block]:
        """Yields the blocks of `file`."""

    def _selected(self, available: Sequence[str], file: str) -> list[str]:
        selected = list(available if self.columns is None else self.columns)
        for name in (*selected, *self.fill_null):
            if name not in available:
                raise ConfigError(unknown_name("column", name, available, at=file))
        return selected

    def _filled(self, table: Any) -> Any:
        for name, value in self.fill_null.items():
            table = table.set_column(table.column_names.index(name), name, table[name].fill_null(value))
        return table

    def _order_state(self, num_examples: int) -> dict[str, Any]:
        window = self.shuffle_window_mib if self.shuffle else None
        return {**super()._order_state(num_examples), "shuffle_window_mib": window}


@dataclasses.dataclass(frozen=True)
class Parquet(TablePipeline):
    """Pipeline over Parquet files. See `TablePipeline` for its settings and for what examples look like."""

    suffix: ClassVar[str] = ".parquet"

    def _blocks(self, file: str) -> Iterator[Block]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with pq.ParquetFile(file) as opened:
            metadata = opened.metadata
            columns = self._selected(opened.schema_arrow.names, file)

        def load(group: int) -> Any:
            # Opened anew: a data set may have more files than a process may hold open.
            with reading(file), pq.ParquetFile(file, metadata=metadata, buffer_size=_READ_BUFFER) as reopened:
                table = self._filled(reopened.read_row_group(group, columns=columns))
            pa.default_memory_pool().release_unused()
            return table

        for group in range(metadata.num_row_groups):
            chunks = [metadata.row_group(group).column(column) for column in range(metadata.num_columns)]
            read = [chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns]
            yield Block(metadata.row_group(group).num_rows, sum(read), functools.partial(load, group))


@dataclasses.dataclass(frozen=True)
class Arrow(TablePipeline):
    """Pipeline over Arrow IPC files and streams, as HuggingFace `datasets` writes them; they are mapped, not read.

    See `TablePipeline` for its settings and for what examples look like.
    """

    suffix: ClassVar[str] = ".arrow"

    def _blocks(self, file: str) -> Iterator[Block]:
        import pyarrow as pa

        mapped = pa.memory_map(file)
        try:
            table = pa.ipc.open_file(mapped).read_all()
        except pa.ArrowInvalid:
            mapped.seek(0)
            table = pa.ipc.open_stream(mapped).read_all()
            _require_end(mapped)
        columns = self._selected(table.column_names, file)
        for batch in table.select(columns).to_batches():
            part = pa.Table.from_batches([batch])
            yield Block(batch.num_rows, batch.nbytes, functools.partial(self._filled, part))


def _require_end(stream: pa.MemoryMappedFile) -> None:
    """Checks for the mark that ends a stream: without it, batches may be missing, as after a kill of their writer."""
    stream.seek(0)
    is_marked = stream.read(4) == _CONTINUATION  # Streams from before 2019 are not.
    stream.seek(stream.size() - 8)
    if is_marked and stream.read(8) != _CONTINUATION + bytes(4):
        raise ValueError("no mark at the end of the stream")
