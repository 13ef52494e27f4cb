"""Tables of a sweep, `trials.parquet` and `results.parquet`, from plain rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from kauldron_core.errors import DamagedFile
from kauldron_core.rundir import atomic, json_text

_SCALARS = (bool, int, float, str)


def write_table(path: str | os.PathLike[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Replaces `path` atomically by a Parquet table.

    Columns are the union of the rows' keys, in order of appearance. A column keeps its type if all its values share
    one (integers beside floats become floats); other columns hold the values as JSON text.
    """
    import pyarrow as pa  # Heavy (0.2 s), and most processes never write a table.
    import pyarrow.parquet as pq

    listed = [dict(row) for row in rows]
    columns = list(dict.fromkeys(key for row in listed for key in row))
    arrays = [_column([row.get(column) for row in listed]) for column in columns]
    table = pa.table([pa.array(values) for values in arrays], names=columns)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    atomic.write_atomic(path, sink.getvalue().to_pybytes())


def read_table(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Returns the rows of a Parquet table.

    Raises:
      DamagedFile: If it is none.
    """
    import pyarrow as pa  # Heavy, as above.
    import pyarrow.parquet as pq

    try:
        return pq.read_table(os.fspath(path)).to_pylist()
    except pa.ArrowException as error:
        raise DamagedFile(f"{os.fspath(path)}: damaged, it is no table ({str(error).splitlines()[0][:100]}).") from None


def _column(values: list[Any]) -> list[Any]:
    plain = [value.item() if getattr(value, "ndim", None) == 0 else value for value in values]
    kinds = {type(value) for value in plain if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in plain]
    if len(kinds) <= 1 and kinds <= set(_SCALARS) and all(map(_fits, plain)):
        return plain
    return [None if value is None else json_text.dumps(value, default=str) for value in plain]


def _fits(value: Any) -> bool:
    return not isinstance(value, int) or -(2**63) <= value < 2**63
