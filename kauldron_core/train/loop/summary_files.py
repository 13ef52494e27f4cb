"""Summaries as files: pictures, texts and histograms that a person looks at."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from kauldron_core import rundir, summaries
from kauldron_core.summaries.png import encode_png


def write(folder: pathlib.Path, values: Mapping[str, Any]) -> list[str]:
    """Writes each value into a file of `folder`, and returns the names of the files.

    Args:
      folder: Made if it is missing.
      values: What summaries computed, by name: pictures `uint8[n h w 3]`, texts, a histogram.
    """
    rundir.make_folder(folder)
    names = []
    for name, value in values.items():
        suffix, data = _as_file(value)
        names.append(name.replace("/", ".") + suffix)
        rundir.write_atomic(folder / names[-1], data)
    return names


def _as_file(value: Any) -> tuple[str, bytes]:
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 4:
        return ".png", encode_png(np.asarray(summaries.grid(value)))
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return ".txt", "\n---\n".join(value).encode()
    return ".json", rundir.dumps(value, default=_plain).encode()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return np.asarray(value).tolist()
