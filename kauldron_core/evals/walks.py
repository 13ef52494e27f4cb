"""How an evaluation walks through its data: all of it, the first batches, or some further ones each time."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import itertools
from collections.abc import Generator
from typing import Any

from kauldron_core.errors import ConfigError
from kauldron_core.evals.run_strategies import RunStrategy


class Walk(abc.ABC):
    """Says which batches one evaluation takes."""

    @abc.abstractmethod
    def batches(self, ds: Any, *, run: RunStrategy, step: int) -> Generator[tuple[int, Any]]:
        """Yields batches with their numbers in the data. Closing it closes the data.

        Args:
          ds: The data, one epoch in stored order.
          run: When the evaluator runs.
          step: Step of the state that is evaluated.
        """

    def count(self, length: int | None) -> int | None:
        """Returns how many batches it takes of data that has `length` (None: nobody knows)."""
        return length

    def check(self, run: RunStrategy, *, at: str) -> None:  # noqa: B027 - most walks go with every strategy
        """Raises a `ConfigError` unless this walk goes with the run strategy."""


@dataclasses.dataclass(frozen=True)
class EvalEpoch(Walk):
    """All of the data, from the start each time."""

    def batches(self, ds: Any, *, run: RunStrategy, step: int) -> Generator[tuple[int, Any]]:
        return _numbered(ds)


@dataclasses.dataclass(frozen=True)
class FirstBatches(Walk):
    """The first `num_batches` batches, the same ones each time."""

    num_batches: int

    def __post_init__(self):
        _check_number(self)

    def batches(self, ds: Any, *, run: RunStrategy, step: int) -> Generator[tuple[int, Any]]:
        return _numbered(ds.take(self.num_batches))

    def count(self, length: int | None) -> int | None:
        return self.num_batches if length is None else min(self.num_batches, length)


@dataclasses.dataclass(frozen=True)
class RollingBatches(Walk):
    """The `num_batches` batches after those of the evaluation before, and from the start again after the last one.

    Where it stands follows from the step and from when the evaluator runs. So a checkpoint holds the place, a resumed
    run goes on with the very next batches, and evaluating the same step again takes the same ones. No evaluation takes
    a batch twice, however small the data.

    Attributes:
      num_batches: How many each time. It has to be said: a walk that neither starts over nor ends after a number of
        batches would read endless data for ever, and finite data only once.
    """

    num_batches: int | None = None

    def __post_init__(self):
        if self.num_batches is None:
            raise ConfigError(
                "RollingBatches: num_batches is unset. A walk that neither starts over nor stops after some batches "
                "never ends on endless data and finds nothing at its second evaluation of finite data. Give a number, "
                "or use EvalEpoch()."
            )
        _check_number(self)

    def check(self, run: RunStrategy, *, at: str) -> None:
        if run.is_standalone:
            raise ConfigError(
                f"{at}: RollingBatches goes on where the evaluation before it ended, and a stand-alone evaluator takes "
                "checkpoints in any order, and again. Use it inside training (EveryNSteps), or FirstBatches."
            )

    def count(self, length: int | None) -> int | None:
        return self.num_batches if length is None else min(self.num_batches or 1, length)

    def batches(self, ds: Any, *, run: RunStrategy, step: int) -> Generator[tuple[int, Any]]:
        size = self.num_batches or 1
        start, length = run.num_runs_before(step) * size, _length(ds)
        if length is not None:
            start, size = start % max(length, 1), min(size, length)
        return _rolling(ds, start, size)


def _rolling(ds: Any, start: int, size: int) -> Generator[tuple[int, Any]]:
    taken: set[int] = set()
    length: int | None = None
    while len(taken) < size:
        with contextlib.closing(_numbered(ds)) as batches:
            number = -1
            for number, batch in batches:
                if number < start:
                    continue
                if number in taken or len(taken) == size:
                    return
                taken.add(number)
                yield number, batch
        if number < 0:
            return
        # Its length shows at its end, where it has none of its own.
        length = number + 1
        start = start % length if start >= length else 0


def _numbered(ds: Any) -> Generator[tuple[int, Any]]:
    batches = iter(ds)
    try:
        yield from zip(itertools.count(), batches, strict=False)
    finally:
        # Data workers end with the evaluation, also with one that was stopped.
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def _length(ds: Any) -> int | None:
    try:
        return len(ds)
    except TypeError:
        return None


def _check_number(walk: FirstBatches | RollingBatches) -> None:
    if not isinstance(walk.num_batches, int) or walk.num_batches < 1:
        raise ConfigError(f"{type(walk).__name__}: num_batches must be at least 1, not {walk.num_batches!r}.")
