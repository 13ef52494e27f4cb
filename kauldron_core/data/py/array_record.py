"""`ArrayRecord`: files of byte records that can be read in any order."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from kauldron_core.data.py.data_source import SourceRecords
from kauldron_core.data.py.files import FilePipeline, reading
from kauldron_core.data.records import Records


@dataclasses.dataclass(frozen=True)
class ArrayRecord(FilePipeline):
    """Pipeline over ArrayRecord files. Examples are `bytes`; the first transform decodes them."""

    suffix: ClassVar[str] = ".array_record"

    def _open_files(self, files: list[str]) -> Records:
        # Grain takes 3 s to import; only who uses it should wait.
        from grain import sources

        open_source: Any = sources.ArrayRecordDataSource
        for file in files:
            with reading(file):
                len(open_source(file))
        source = open_source(files)
        return SourceRecords(source)
