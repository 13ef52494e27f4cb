"""Arrow tables as columns of records: NumPy arrays where possible, text, bytes and lists of any length beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kauldron_core.data import trees
from kauldron_core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


class Objects(NamedTuple):
    """A column that is no array. It stays as Arrow stores it, and only rows that are asked for become objects.

    Attributes:
      array: The column.
      to_rows: Turns a part of it into a list of records.
    """

    array: Any
    to_rows: Callable[[Any], list[Any]]


StoredColumn = np.ndarray | Objects | dict[str, "StoredColumn"]
Column = np.ndarray | list[Any] | dict[str, "Column"]


def stored_columns(table: pa.Table) -> dict[str, StoredColumn]:
    """Returns the columns of `table`; numbers, and lists of one length of them, share its memory where they can.

    Raises:
      ConfigError: If values are missing.
    """
    return {name: _stored(table[name].combine_chunks(), name) for name in table.column_names}


def _stored(array: Any, name: str) -> StoredColumn:
    import pyarrow as pa

    if array.null_count:
        raise ConfigError(f"column {name} holds {array.null_count} missing values. Give them one: fill_null={{...}}.")
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _stored(array.storage, name)
    if pa.types.is_dictionary(kind):
        return _stored(array.dictionary_decode(), name)
    if pa.types.is_struct(kind):
        return {field.name: _stored(array.field(field.name), f"{name}.{field.name}") for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _stored_lists(array, name)
    if pa.types.is_primitive(kind):
        return array.to_numpy(zero_copy_only=False)
    return Objects(array, lambda part: part.to_pylist())


def _stored_lists(array: Any, name: str) -> StoredColumn:
    lengths = _lengths(array)
    values = _stored(array.flatten(), name)
    if isinstance(values, np.ndarray) and len(lengths) and (lengths == lengths[0]).all():
        return values.reshape(len(lengths), lengths[0], *values.shape[1:])
    return Objects(array, lambda part: _list_rows(part, name))


def _lengths(array: Any) -> np.ndarray:
    import pyarrow as pa

    if pa.types.is_fixed_size_list(array.type):
        return np.full(len(array), array.type.list_size)
    return np.diff(array.offsets.to_numpy())


def _list_rows(array: Any, name: str) -> list[Any]:
    values = _stored(array.flatten(), name)
    lengths = _lengths(array)
    column = take(values, np.arange(lengths.sum()))
    return [_part(column, end - length, end) for length, end in zip(lengths, np.cumsum(lengths), strict=True)]


def _part(column: Column, start: int, end: int) -> Any:
    if isinstance(column, dict):
        return {name: _part(part, start, end) for name, part in column.items()}
    return column[start:end]


def take(column: StoredColumn, rows: np.ndarray) -> Any:
    """Returns the given rows of `column`."""
    if isinstance(column, dict):
        return {name: take(part, rows) for name, part in column.items()}
    return column.to_rows(column.array.take(rows)) if isinstance(column, Objects) else column.take(rows, axis=0)


def scattered(parts: Sequence[tuple[np.ndarray, Any]], count: int) -> Any:
    """Returns one column of `count` rows.

    Args:
      parts: Rows of the result, and the columns (of `take`) that belong there.
      count: Rows in all.
    """
    _, first = parts[0]
    if isinstance(first, dict):
        return {name: scattered([(rows, part[name]) for rows, part in parts], count) for name in first}
    if all(isinstance(part, np.ndarray) and part.shape[1:] == first.shape[1:] for _, part in parts):
        column = np.empty((count, *first.shape[1:]), first.dtype)
        for rows, part in parts:
            column[rows] = part
        return column
    listed: list[Any] = [None] * count
    for rows, part in parts:
        for row, value in zip(rows.tolist(), part, strict=True):
            listed[row] = value
    return listed


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
