"""`Summary`: a metric whose value is to be looked at."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.struct

from kauldron_core.metrics import Metric
from kauldron_core.summaries.samples import Keep, SampleState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary(Metric):
    """Base class of summaries that keep some examples.

    A summary defines `num`, `get_state`, which hands a tree of arrays with the examples first to `sample`, and `show`,
    which turns those that are kept into what is shown.

    Attributes:
      keep: `'first'` keeps the first examples, `'random'` a choice that depends on their content and `seed` only.
      seed: Of the random choice.
    """

    keep: Keep = "first"
    seed: int = 0

    @flax.struct.dataclass
    class State(SampleState):
        def compute(self) -> Any:
            kept = super().compute()
            return None if kept is None or self.parent is None else self.parent.show(kept)

    def __post_init__(self):
        if self.keep not in ("first", "random"):
            raise ValueError(f"{type(self).__name__}.keep: {self.keep!r} is neither 'first' nor 'random'")
        if self.num < 1:
            raise ValueError(f"{type(self).__name__}: it has to keep at least 1 example, not {self.num}")

    @property
    def num(self) -> int:
        """How many examples are kept."""
        raise NotImplementedError(f"{type(self).__name__} does not say how many examples it keeps")

    def show(self, kept: Any) -> Any:
        """Content to show of the examples kept, a tree of NumPy arrays. Runs on the host."""
        return kept

    def sample(self, values: Any, mask: Any = None) -> Any:
        """Returns the state of the examples `values`."""
        return self.State.from_values(values, num=self.num, mask=mask, keep=self.keep, seed=self.seed)


def rearrange(values: Any, pattern: str | None, sizes: Mapping[str, Any] | None) -> Any:
    """Returns `values` rearranged by an einops pattern, or as they are without one."""
    if pattern is None:
        return values
    import einops  # Only for summaries that rearrange.

    return einops.rearrange(values, pattern, **(sizes or {}))
