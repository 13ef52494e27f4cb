"""Tables of examples in Parquet: one row an example, lists and texts as such."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from kauldron_core.rundir import atomic


def write_examples(path: str | os.PathLike[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Replaces `path` by a Parquet table of `rows`, atomically. What Parquet has no type for is written as text."""
    import pyarrow as pa  # 0.2 s, and only who asks for a table needs it.
    import pyarrow.parquet as pq

    listed = [dict(row) for row in rows]
    names = list(dict.fromkeys(name for row in listed for name in row))
    columns = [[_plain(row.get(name)) for row in listed] for name in names]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table([_column(values) for values in columns], names=names), sink)
    atomic.make_folder(os.path.dirname(os.path.abspath(path)))
    atomic.write_atomic(path, sink.getvalue().to_pybytes())


def read_examples(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Returns the rows of a table."""
    import pyarrow.parquet as pq  # As above.

    return pq.read_table(os.fspath(path)).to_pylist()


def _column(values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array([None if value is None else str(value) for value in values])


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if not hasattr(value, "dtype"):
        return value
    # bfloat16 and the like have no Parquet type.
    return (value.astype("float32") if value.dtype.kind == "V" else value).tolist()
