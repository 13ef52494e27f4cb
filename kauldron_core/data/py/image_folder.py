"""`ImageFolder`: images in folders that are named after their classes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from kauldron_core.data.prefetching import PrefetchingPipeline
from kauldron_core.data.py.files import reading
from kauldron_core.data.records import Records
from kauldron_core.data.stored import StoredPipeline
from kauldron_core.errors import ConfigError, listing, unknown_name

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


@dataclasses.dataclass(frozen=True)
class ImageFolder(StoredPipeline, PrefetchingPipeline):
    """Pipeline over image files whose class is the folder they lie in, `PATH/CLASS/.../FILE`.

    Examples are `{"image": uint8[h w c], "label": int64}`; images of different sizes need a `Resize` or a crop. Files
    come in the order of their classes and names. Photographs are turned as their camera was held.

    Attributes:
      path: The folder with one folder a class.
      classes: Names of the folders to read; their places here are the labels. None reads all folders, sorted.
      mode: How pixels are read: 'RGB', 'RGBA', 'L' (one channel) or another mode of Pillow; None leaves them as they
        are stored, which images of 16 bits need.
    """

    path: str | os.PathLike[str]
    classes: Sequence[str] | None = None
    mode: str | None = "RGB"

    def class_names(self) -> list[str]:
        """Returns the name of each label. Lists the folder."""
        try:
            with os.scandir(self.path) as entries:
                found = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigError(f"{self}: no folder {os.fspath(self.path)!r}.") from None
        for name in self.classes or ():
            if name not in found:
                raise ConfigError(unknown_name("class", name, found, at=f"{self} {os.fspath(self.path)!r}"))
        return list(found if self.classes is None else self.classes)

    def _source_key(self) -> Hashable:
        return os.fspath(self.path), None if self.classes is None else tuple(self.classes), self.mode

    def _open_records(self) -> Records:
        names = self.class_names()
        files = [list(_image_files(os.path.join(self.path, name))) for name in names]
        if not any(files):
            raise ConfigError(f"no images ({' '.join(SUFFIXES)}) in folders of {os.fspath(self.path)!r}.")
        if empty := [name for name, part in zip(names, files, strict=True) if not part]:
            folders = f"the folders of the classes {listing(empty)} in {os.fspath(self.path)!r}"
            raise ConfigError(
                f"no images ({' '.join(SUFFIXES)}) in {folders}. Name those that are meant: classes=[...]."
            )
        labels = np.repeat(np.arange(len(files)), [len(part) for part in files])
        return ImageRecords([file for part in files for file in part], labels, self.mode)


class ImageRecords(Records):
    """Image files, decoded when they are read.

    Args:
      files: Their paths.
      labels: Their classes.
      mode: As Pillow names it, None for that of each file.
    """

    def __init__(self, files: Sequence[str], labels: np.ndarray, mode: str | None):
        self._files = files
        self._labels = labels
        self._mode = mode

    def __len__(self) -> int:
        return len(self._files)

    def read(self, numbers: np.ndarray) -> list[Any]:
        return [{"image": self._image(number), "label": self._labels[number]} for number in numbers.tolist()]

    def _image(self, number: int) -> np.ndarray:
        # A fifth of a second to import; only who reads images should wait.
        from PIL import Image, ImageOps

        with reading(self._files[number]), Image.open(self._files[number]) as opened:
            upright = ImageOps.exif_transpose(opened)
            pixels = np.asarray(upright if self._mode is None else upright.convert(self._mode))
        return pixels if pixels.ndim == 3 else pixels[..., None]


def _image_files(folder: str) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield os.path.join(parent, name)
