"""What comes out of an evaluation, or of one share of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

from kauldron_core.forward import AuxiliariesState
from kauldron_core.rundir import Better


class Mergeable(Protocol):
    """States over some examples."""

    def merge(self, other: Any) -> Any:
        """Returns the states over the examples of both."""
        ...


_StatesT = TypeVar("_StatesT", bound=Mergeable)


@dataclasses.dataclass(frozen=True)
class Collected(Generic[_StatesT]):
    """What one share of the data gave: states on the host, not yet numbers. It can be sent to another process.

    Attributes:
      states: The merged states.
      num_examples: Examples counted, padding excluded.
      examples: One row an example, if asked for.
    """

    states: _StatesT
    num_examples: int
    examples: list[dict[str, Any]] | None = None

    def merge(self, other: Self) -> Self:
        """Returns what both shares together give: what one evaluation over both would have given."""
        examples = None if self.examples is None else self.examples + (other.examples or [])
        return type(self)(self.states.merge(other.states), self.num_examples + other.num_examples, examples)


@dataclasses.dataclass(frozen=True)
class EvalResult:
    """What came out of one evaluation.

    Attributes:
      name: The evaluator's name.
      step: Step of the state.
      states: The merged states, on the host.
      values: The computed scalars: `losses/total`, `metrics/accuracy`.
      num_examples: Examples counted, padding excluded.
      seconds: How long it took.
      examples: One row an example, if the evaluator was asked for them.
      better: What is better of the values, by name, as far as their metrics say so.
    """

    name: str
    step: int
    states: AuxiliariesState
    values: dict[str, float]
    num_examples: int
    seconds: float
    examples: list[dict[str, Any]] | None = None
    better: Mapping[str, Better] = dataclasses.field(default_factory=dict)

    @property
    def examples_per_s(self) -> float:
        """Examples a second, compiling included."""
        return self.num_examples / self.seconds if self.seconds > 0 else 0.0
