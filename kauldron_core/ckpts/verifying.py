"""Reads everything in a checkpoint, and says what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from kauldron_core.ckpts import checksums, layout, mismatch, pointers, reader
from kauldron_core.errors import ConfigError

_BATCH_BYTES = 1 << 28


def verify(path: str | os.PathLike[str]) -> list[str]:
    """Faults of a checkpoint, one line each; none if all of it can be read and is as it was saved.

    Arrays are read some at a time, so memory stays small.
    """
    path = epath.Path(path)
    if not path.exists():
        return ["there is no such folder"]
    if not layout.is_committed(path):
        return ["not a whole checkpoint: its save never came to its end, or another program made it"]
    changed = checksums.differences(path)
    try:
        if (row := pointers.find(path)) is not None:
            changed += [f"{row.path}: {text}" for text in checksums.differences(row.path)]
        if any(text.endswith(checksums.NO_FILE) for text in changed):
            return changed  # Orbax would wait for it.
        saved: dict[str, str] = reader.read_metadata(path)["state"]
        reader.read_data_state(path)
        for wanted in _batches({place: mismatch.read_spec(text) for place, text in saved.items()}):
            missing = set(wanted) - set(reader.read_arrays(path, wanted))
            changed += [f"{place}: in the metadata, and not in the arrays" for place in sorted(missing)]
    except (reader.DamagedCheckpoint, ConfigError, ValueError) as error:
        changed.append(str(error).removeprefix(f"{path}: "))
    return changed


def _batches(wanted: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    batch: dict[str, Any] = {}
    size = 0
    for place, spec in wanted.items():
        if batch and size + mismatch.num_bytes(spec) > _BATCH_BYTES:
            yield batch
            batch, size = {}, 0
        batch[place] = spec
        size += mismatch.num_bytes(spec)
    if batch:
        yield batch
