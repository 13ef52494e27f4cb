"""What was decoded, as a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from evaluators.decode.decoders import Decoded
from kauldron_core.rundir import write_examples


def decoded_rows(
    decoded: Decoded, ids: Iterable[Any], *, to_text: Callable[[Sequence[int]], str] | None = None
) -> list[dict[str, Any]]:
    """Returns one row a sequence: `id`, `rank` (0 is the first), `score`, `tokens` up to the EOS, and `text`.

    Args:
      decoded: What was decoded.
      ids: The id of each example, None for rows that are padding.
      to_text: Turns tokens into text; None leaves the text out.
    """
    tokens, scores, lengths = (np.asarray(part) for part in decoded)
    rows: list[dict[str, Any]] = []
    for row, name in enumerate(ids):
        if name is None:
            continue
        for rank in np.flatnonzero(np.isfinite(scores[row])).tolist():
            sequence = tokens[row, rank, : lengths[row, rank]].tolist()
            text = {} if to_text is None else {"text": to_text(sequence)}
            rows.append({"id": name, "rank": rank, "score": float(scores[row, rank]), "tokens": sequence, **text})
    return rows


def write_decoded(
    path: str | os.PathLike[str],
    decoded: Decoded,
    ids: Iterable[Any],
    *,
    to_text: Callable[[Sequence[int]], str] | None = None,
) -> None:
    """Writes `decoded_rows` as a Parquet file."""
    write_examples(path, decoded_rows(decoded, ids, to_text=to_text))
