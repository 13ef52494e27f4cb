"""Arrow tables as records: dictionaries of NumPy arrays, text and bytes, nested as the table is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kauldron_core.data import trees
from kauldron_core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

Column = np.ndarray | list[Any] | dict[str, "Column"]


def table_columns(table: pa.Table) -> dict[str, Column]:
    """Returns the columns of `table`: numbers as arrays (lists of one length too), text and bytes as lists."""
    return {name: _column(table[name].combine_chunks(), name) for name in table.column_names}


def _column(array: Any, name: str) -> Column:
    import pyarrow as pa

    if array.null_count:
        raise ConfigError(f"column {name} holds {array.null_count} missing values. Give them one: fill_null={{...}}.")
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _column(array.storage, name)
    if pa.types.is_dictionary(kind):
        return _column(array.dictionary_decode(), name)
    if pa.types.is_struct(kind):
        return {field.name: _column(array.field(field.name), f"{name}.{field.name}") for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(array, name)
    if pa.types.is_primitive(kind):
        return array.to_numpy(zero_copy_only=False)
    return array.to_pylist()


def _lists(array: Any, name: str) -> Column:
    import pyarrow as pa

    values = _column(array.flatten(), name)
    if pa.types.is_fixed_size_list(array.type):
        lengths = np.full(len(array), array.type.list_size)
    else:
        lengths = np.diff(array.offsets.to_numpy())
    if isinstance(values, np.ndarray) and len(lengths) and (lengths == lengths[0]).all():
        return values.reshape(len(lengths), lengths[0], *values.shape[1:])
    ends = np.cumsum(lengths)
    return [_part(values, end - length, end) for length, end in zip(lengths, ends, strict=True)]


def _part(values: Column, start: int, end: int) -> Any:
    if isinstance(values, dict):
        return {name: _part(column, start, end) for name, column in values.items()}
    return values[start:end]


def column_rows(column: Column, count: int) -> list[Any]:
    """Returns the `count` rows of `column`."""
    if not isinstance(column, dict):
        return list(column)
    rows = {name: column_rows(part, count) for name, part in column.items()}
    return [{name: part[row] for name, part in rows.items()} for row in range(count)]


def stacked(column: Column) -> Any:
    """Returns `column` as one array, nested as it is.

    Raises:
      ConfigError: If it holds lists of different lengths.
    """
    if isinstance(column, dict):
        return {name: stacked(part) for name, part in column.items()}
    return column if isinstance(column, np.ndarray) else trees.stack(column)
