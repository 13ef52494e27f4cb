"""What a model said about the examples of a task, by example."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from kauldron_core.errors import RunFailed


@dataclasses.dataclass(frozen=True)
class TaskOutputs:
    """Outputs by the place of the example in its task, so that nothing depends on the order in which they come.

    Attributes:
      by_example: `tokens`, `token_scores` and `likelihood`, as far as the metrics need them, for each example.
      values: The task's metrics, once they are computed.
    """

    by_example: Mapping[int, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    values: Mapping[str, float] | None = None

    def merge(self, other: TaskOutputs) -> TaskOutputs:
        """Returns the outputs of both; an example that both have seen counts once."""
        return TaskOutputs({**other.by_example, **self.by_example})

    def compute(self) -> dict[str, float]:
        """Returns the task's metrics; nothing before they are computed, which needs the task."""
        return dict(self.values or {})

    def stacked(self, name: str, num_examples: int, *, task: str) -> np.ndarray:
        """Returns one output of all examples of the task, in its order.

        Raises:
          RunFailed: If an example has none.
        """
        missing = [index for index in range(num_examples) if index not in self.by_example]
        if missing:
            raise RunFailed(
                f"task {task!r}: {len(missing)} of {num_examples} examples have no output, the first is {missing[0]}. "
                "Filters of the data leave out targets that the metrics need."
            )
        return np.array([self.by_example[index][name] for index in range(num_examples)])
