"""A few texts, as the model saw or wrote them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from kauldron_core import kontext
from kauldron_core.summaries.samples import is_text
from kauldron_core.summaries.summary import Summary


def decode_utf8(row: Any) -> str:
    """Returns a row of bytes, filled up with zeros, as text."""
    return bytes(np.asarray(row).astype(np.uint8)).rstrip(b"\0").decode(errors="replace")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowTexts(Summary):
    """Some texts, as a list of strings.

    Attributes:
      texts: Strings (outside of jit), or integers of shape `b length`, which `decode` turns into text.
      mask: Which examples count.
      num_texts: How many are kept.
      decode: Makes a string of one row; by default the row holds UTF-8 bytes.
    """

    texts: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None
    num_texts: int = 5
    decode: Callable[[Any], str] = decode_utf8

    @property
    def num(self) -> int:
        return self.num_texts

    def get_state(self, texts: Any, mask: Any = None) -> Any:
        return self.sample(list(texts) if is_text(texts) else {"ids": jnp.asarray(texts)}, mask)

    def show(self, kept: Any) -> Any:
        if isinstance(kept, dict):
            return [self.decode(row) for row in kept["ids"]]
        return [text.decode(errors="replace") if isinstance(text, bytes) else str(text) for text in kept]
