"""What the processes of a job tell each other beside arrays."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


def gathered(value: Any) -> list[Any]:
    """Returns the `value` of every process, in their order. All must call it; what is told is data for JSON."""
    if jax.process_count() == 1:
        return [value]
    content = np.frombuffer(json.dumps(value).encode(), np.uint8)
    size = int(np.max(multihost_utils.process_allgather(np.int32(content.size))))
    # JSON ends at blanks as well as without.
    rows = multihost_utils.process_allgather(np.pad(content, (0, size - content.size), constant_values=ord(" ")))
    return [json.loads(np.asarray(row, np.uint8).tobytes()) for row in rows]
