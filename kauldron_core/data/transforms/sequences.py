"""Transforms of sequences and text."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kauldron_core.data.transforms.base import ElementWiseTransform, check_present
from kauldron_core.errors import ConfigError

EOS_ID = 1
# SeqIO's byte vocabulary: 0 pads, 1 ends, 2 is unknown, and the bytes follow.
_NUM_SPECIAL_IDS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truncate(ElementWiseTransform):
    """Cuts a dimension to `length` at most.

    Attributes:
      length: The most that stays.
      axis: The dimension.
    """

    length: int
    axis: int = 0

    def map_element(self, value: Any) -> np.ndarray:
        return np.take(value, np.arange(min(self.length, np.shape(value)[self.axis])), axis=self.axis)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pad(ElementWiseTransform):
    """Fills a dimension up to `length`; a longer one is an error (see `Truncate`).

    Attributes:
      length: The length afterwards.
      value: What to fill with.
      axis: The dimension.
    """

    length: int
    value: Any = 0
    axis: int = 0

    def map_element(self, value: Any) -> np.ndarray:
        array = np.asarray(value)
        missing = self.length - array.shape[self.axis]
        if missing < 0:
            raise ValueError(
                f"shape {array.shape} is longer than {self.length} along axis {self.axis}: truncate first."
            )
        widths = [(0, 0)] * array.ndim
        widths[self.axis] = (0, missing)
        return np.pad(array, widths, constant_values=self.value)


@dataclasses.dataclass(frozen=True)
class Pack:
    """Packs several examples into one of fixed lengths.

    Next to each packed entry, `tokens` say, come `tokens_segment_ids` (1, 2, ... for the examples in it, 0 for
    padding) and `tokens_positions` (0, 1, ... within each), int32. Entries that `lengths` does not name are left out.

    Every record is read once when the data is opened. The examples that share a row are close to each other in the
    stored order, and the same ones in every epoch. Random transforms come after it, and see packed rows.

    Attributes:
      lengths: The entries to pack, and their lengths afterwards. A longer example is an error (see `Truncate`).
      value: What fills up the rest.
    """

    lengths: Mapping[str, int]
    value: Any = 0

    def __post_init__(self):
        if not self.lengths or any(length < 1 for length in self.lengths.values()):
            raise ConfigError(f"Pack: lengths is {dict(self.lengths)}, not positive lengths by entry.")

    def lengths_of(self, element: Mapping[str, Any]) -> dict[str, int]:
        """Returns how much room an example takes."""
        lengths = {}
        for key, most in self.lengths.items():
            check_present(key, element, "Pack")
            if not np.ndim(element[key]):
                raise ValueError(f"{key} is a scalar: only sequences can be packed.")
            lengths[key] = np.shape(element[key])[0]
            if lengths[key] > most:
                raise ValueError(f"{key} has length {lengths[key]}, longer than {most}: truncate first.")
        return lengths

    def pack(self, elements: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """Returns one example made of several that fit into it."""
        packed = {}
        for key, length in self.lengths.items():
            parts = [np.asarray(element[key]) for element in elements]
            sizes = [len(part) for part in parts]
            values = np.full((length, *parts[0].shape[1:]), self.value, parts[0].dtype)
            segment_ids, positions = np.zeros((2, length), np.int32)
            values[: sum(sizes)] = np.concatenate(parts)
            segment_ids[: sum(sizes)] = np.repeat(np.arange(1, len(parts) + 1), sizes)
            positions[: sum(sizes)] = np.concatenate([np.arange(size) for size in sizes])
            packed |= {key: values, f"{key}_segment_ids": segment_ids, f"{key}_positions": positions}
        return packed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenize(ElementWiseTransform):
    """Turns text into token ids, int32.

    Attributes:
      tokenizer: Any function from text to ids, the path of a SentencePiece model (needs `sentencepiece`), or None for
        the bytes of UTF-8: byte `b` is `b + 3`, as in SeqIO.
      append_eos: Whether to append the id 1, which ends a text.
    """

    tokenizer: Callable[[str], Sequence[int]] | str | os.PathLike[str] | None = None
    append_eos: bool = False

    def map_element(self, value: Any) -> np.ndarray:
        text = value.decode() if isinstance(value, bytes) else str(value)
        ids = np.asarray(self._encode(text), np.int32)
        return np.append(ids, np.int32(EOS_ID)) if self.append_eos else ids

    def _encode(self, text: str) -> Sequence[int] | np.ndarray:
        if self.tokenizer is None:
            return np.frombuffer(text.encode(), np.uint8).astype(np.int32) + _NUM_SPECIAL_IDS
        if callable(self.tokenizer):
            return self.tokenizer(text)
        return _sentence_piece(os.fspath(self.tokenizer)).encode(text)


@functools.lru_cache(maxsize=8)
def _sentence_piece(path: str) -> Any:
    # Comes with the seqio extra only.
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=path)
