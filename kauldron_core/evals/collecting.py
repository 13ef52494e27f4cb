"""What evaluators share that collect states: where their parts come from, and how a result comes about."""

from __future__ import annotations

import abc
import dataclasses
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from kauldron_core.data import check_shares
from kauldron_core.errors import ConfigError
from kauldron_core.evals.results import Collected, EvalResult
from kauldron_core.evals.run_strategies import RunStrategy
from kauldron_core.evaluator_nodes import INHERITED
from kauldron_core.forward import AuxiliariesState, RngStreams, TrainState
from kauldron_core.konfig.resolving.uncalled import refuse_uncalled
from kauldron_core.metrics import directions_of
from kauldron_core.rundir import Better

_logger = logging.getLogger(__name__)


class EvaluationStopped(Exception):
    """Somebody asked the evaluation to end; there is no result."""


class StateTransform(Protocol):
    """Makes another state of a state."""

    def transform(self, state: TrainState) -> TrainState:
        """Returns the state to be used."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CollectingEvaluator(abc.ABC):
    """Base class of evaluators whose work is `collect`, on all of the data or a share of it.

    Attributes:
      run: When it runs.
      ds: The data; the trainer's `eval_ds` where unset.
      model: The model; the trainer's where unset.
      rng_streams: The random streams; the trainer's where unset.
      init_transform: Changes the state before it is evaluated: `kd.optim.UseEmaParams()` evaluates the average.
      name: Its key in `trainer.evals`, set there.
    """

    run: RunStrategy
    ds: Any = None
    model: Any = None
    rng_streams: RngStreams | None = None
    init_transform: StateTransform | None = None
    name: str = "eval"

    required: ClassVar[tuple[str, ...]] = ("ds", "model")

    def __post_init__(self):
        for name in ("run", "ds", "model", "rng_streams", "init_transform"):
            refuse_uncalled(getattr(self, name), at=name)

    @property
    def needs_opt_state(self) -> bool:
        """Whether a state without the optimizer's part won't do."""
        return self.init_transform is not None

    @property
    def num_data_batches(self) -> int | None:
        """How many batches of data an evaluation takes; None where the data does not say."""
        try:
            return len(self._data())
        except TypeError:
            return None

    @property
    def _takes_all(self) -> bool:
        """Whether it goes on to the end of the data."""
        return True

    def _data(self) -> Any:
        return for_eval(self.require("ds"))

    @property
    def directions(self) -> Mapping[str, Better]:
        """What is better of its numbers, by name: `{"metrics/accuracy": "higher"}`."""
        return directions_of(getattr(self, "metrics", None), prefix="metrics")

    def check(self) -> None:
        """Raises unless everything is there that an evaluation needs.

        Raises:
          ConfigError: If a part is neither set here nor in the trainer, or the parts don't go together.
        """
        for field in self.required:
            self.require(field)
        if self._takes_all and _may_be_endless(ds := self.require("ds")):
            limit = f"evals.{self.name}.num_batches" if hasattr(self, "num_batches") else "its max_batches"
            raise ConfigError(
                f"evals.{self.name}.ds: {ds} has num_epochs=None, so nothing says that it ends, and an evaluation "
                f"takes all of it. Set its num_epochs=1 if its source ends, or {limit}."
            )

    def require(self, field: str) -> Any:
        """Returns a part.

        Raises:
          ConfigError: If it is unset.
        """
        value = getattr(self, field)
        if value is None:
            raise ConfigError(
                f"evals.{self.name}.{field}: unset. Give it, or put the evaluator into the `evals` of a Trainer that "
                f"has it (`{INHERITED.get(field, field)}`)."
            )
        return value

    def evaluate(self, state: TrainState, *, stop: threading.Event | None = None) -> EvalResult:
        """Returns the metrics of `state`.

        Args:
          state: The state; it is not changed.
          stop: When set, the evaluation ends before its next batch.

        Raises:
          EvaluationStopped: If `stop` was set.
          ConfigError: If a part is missing, there is no data, or it does not fit.
        """
        started = time.monotonic()
        collected = self.collect(state, stop=stop)
        return self.result(collected, step=int(state.step), seconds=time.monotonic() - started)

    def collect(
        self, state: TrainState, *, stop: threading.Event | None = None, shard_index: int = 0, shard_count: int = 1
    ) -> Collected[AuxiliariesState]:
        """Returns what one share of the data gave. Those of all shares, merged, are that of the whole.

        Args:
          state: The state; it is not changed.
          stop: When set, it ends before its next batch.
          shard_index: Which share.
          shard_count: How many there are; each has batches of the full size.

        Raises:
          EvaluationStopped: If `stop` was set.
          ConfigError: If a part is missing, there is no data, or it does not fit.
        """
        self.check()
        self._compare_hosts()
        if self.init_transform is not None:
            state = self.init_transform.transform(state)
        return self.collect_share(state, stop, shard_index, shard_count)

    def _compare_hosts(self) -> None:
        """Compares the shares of the hosts, the first time."""
        if "_is_compared" not in vars(self):
            check_shares(self._data(), at=f"evals.{self.name}.ds")
            vars(self)["_is_compared"] = True

    def trace(self, state: TrainState) -> None:
        """Raises what an evaluation would raise for its wiring, found with shapes; computes nothing.

        Args:
          state: Shapes of a state.
        """
        del state

    @abc.abstractmethod
    def collect_share(
        self, state: TrainState, stop: threading.Event | None, shard_index: int, shard_count: int
    ) -> Collected[AuxiliariesState]:
        """Returns what one share of the data gave, for a state that is transformed already."""

    def result(self, collected: Collected[AuxiliariesState], *, step: int, seconds: float) -> EvalResult:
        """Returns the numbers of what was collected from all shares; NaN where no example counted."""
        if nothing := collected.states.empty_names():
            _logger.warning(
                "evals.%s: no example counted for %s at step %d (are all masks zero?), so the value is NaN.",
                *(self.name, ", ".join(nothing), step),
            )
        return EvalResult(
            name=self.name,
            step=step,
            states=collected.states,
            values=collected.states.scalars(or_nan=True),
            num_examples=collected.num_examples,
            seconds=seconds,
            examples=collected.examples,
            better=self.directions,
        )


def for_eval(ds: Any) -> Any:
    """Returns data as an evaluation reads it: one epoch, in stored order. What can't say so is read as it is."""
    return ds.for_eval() if hasattr(ds, "for_eval") else ds


def _may_be_endless(ds: Any) -> bool:
    """Returns whether data does not say that one epoch of it ends. Looks at its settings only."""
    if hasattr(ds, "for_eval"):
        return bool(getattr(ds, "may_be_endless", False))
    return getattr(ds, "num_epochs", 1) is None and getattr(ds, "max_batches", None) is None
