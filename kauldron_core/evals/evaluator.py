"""`Evaluator`: losses and metrics over a whole data set, every example counted once."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from kauldron_core.errors import ConfigError
from kauldron_core.evals.program import EvalProgram, Parts, split_by_mask
from kauldron_core.evals.run_strategies import RunStrategy
from kauldron_core.forward import AuxiliariesState, ForwardPass, RngStreams, TrainState, padding_mask_of, reads
from kauldron_core.losses import named_losses


class EvaluationStopped(Exception):
    """Somebody asked the evaluation to end; there is no result."""


class StateTransform(Protocol):
    """Makes another state of a state."""

    def transform(self, state: TrainState) -> TrainState:
        """Returns the state to be used."""
        ...


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
    """

    name: str
    step: int
    states: AuxiliariesState
    values: dict[str, float]
    num_examples: int
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Evaluator:
    """Evaluates a state over one epoch of `ds`, in stored order, the last batch padded and masked.

    One program is compiled for all batches. Losses and metrics that take no mask run on the unpadded remainder of
    the last batch, which compiles a second one. Both are kept, so an evaluator may be used again with other
    parameters of the same shapes.

    Attributes:
      run: When it runs.
      ds: The data; the trainer's `eval_ds` where unset.
      num_batches: How many batches to use; None is all of them.
      losses: Losses by name; the trainer's where unset.
      metrics: Metrics by name; where unset the trainer's, but for those that read gradients.
      model: The model; the trainer's where unset.
      rng_streams: The random streams; the trainer's where unset.
      init_transform: Changes the state before it is evaluated: `kd.optim.UseEmaParams()` evaluates the average.
      name: Its key in `trainer.evals`, set there.
    """

    run: RunStrategy
    ds: Any = None
    num_batches: int | None = None
    losses: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] | None = None
    model: Any = None
    rng_streams: RngStreams | None = None
    init_transform: StateTransform | None = None
    name: str = "eval"

    def evaluate(self, state: TrainState, *, stop: threading.Event | None = None) -> EvalResult:
        """Returns the losses and metrics of `state`.

        Args:
          state: The state; it is not changed.
          stop: When set, the evaluation ends before its next batch.

        Raises:
          EvaluationStopped: If `stop` was set.
          ConfigError: If there is no data, or the evaluator was built alone and lacks a part.
        """
        started = time.monotonic()
        if self.init_transform is not None:
            state = self.init_transform.transform(state)
        total, num_examples = AuxiliariesState(), 0
        running: AuxiliariesState | None = None
        with self._batches() as batches:
            for batch in batches:
                if stop is not None and stop.is_set():
                    raise EvaluationStopped(self.name)
                previous, running = running, self._evaluate_batch(state, batch)
                # Fetched one batch late: the device works on this one while the host merges the one before.
                if previous is not None:
                    total = total.merge(previous.to_host())
                num_examples += _num_examples(batch)
        if running is None:
            raise ConfigError(f"evals.{self.name}.ds: there is no data to evaluate on.")
        total = total.merge(running.to_host())
        return EvalResult(
            name=self.name,
            step=int(state.step),
            states=total,
            values=total.scalars(),
            num_examples=num_examples,
            seconds=time.monotonic() - started,
        )

    def _evaluate_batch(self, state: TrainState, batch: Any) -> AuxiliariesState:
        whole, unpadded = self._programs_for(state, batch)
        states = whole(state, batch)
        mask = padding_mask_of(batch)
        if not whole.unmasked or mask is None or np.all(mask):
            return states
        # What takes no mask has counted the padding: it runs again, on the examples alone.
        states = states.without(losses=whole.unmasked.losses, metrics=whole.unmasked.metrics)
        return states.merge(unpadded(state, _select(batch, np.asarray(mask))))

    def _programs_for(self, state: TrainState, batch: Any) -> tuple[EvalProgram, EvalProgram]:
        """Returns the program for every batch, and the one for the remainder of what takes no mask."""
        if not self._programs:
            forward = self._forward
            masked, unmasked = split_by_mask(forward, self._parts, state, batch)
            self._check_hosts(unmasked)
            none = Parts({}, {})
            self._programs.extend([EvalProgram(forward, masked, unmasked), EvalProgram(forward, none, unmasked)])
        whole, unpadded = self._programs
        return whole, unpadded

    def _check_hosts(self, unmasked: Parts) -> None:
        if jax.process_count() > 1 and unmasked:
            names = ", ".join([*unmasked.losses, *unmasked.metrics])
            raise ConfigError(
                f"evals.{self.name}: {names}: without a `mask` argument they need the unpadded remainder, and there is "
                "none with several hosts. Give their `get_state` a mask."
            )

    @functools.cached_property
    def _programs(self) -> list[EvalProgram]:
        """The two programs, once the first batch has shown which parts take its mask."""
        return []

    @functools.cached_property
    def _parts(self) -> Parts:
        return Parts(dict(named_losses(self._require("losses"))), self._require("metrics"))

    @functools.cached_property
    def _forward(self) -> ForwardPass:
        readers = (*self._parts.losses.values(), *self._parts.metrics.values())
        return ForwardPass(self._require("model"), self.rng_streams or RngStreams(), readers)

    @contextlib.contextmanager
    def _batches(self) -> Iterator[Iterator[Any]]:
        ds = self._require("ds")
        ds = ds.for_eval() if hasattr(ds, "for_eval") else ds
        batches = iter(ds if self.num_batches is None else ds.take(self.num_batches))
        try:
            yield batches
        finally:
            # Data workers end with the evaluation, also with one that was stopped.
            if hasattr(batches, "close"):
                batches.close()

    def _require(self, field: str) -> Any:
        value = getattr(self, field)
        if value is None:
            raise ConfigError(
                f"evals.{self.name}.{field}: unset. Give it, or put the evaluator into the `evals` of a Trainer."
            )
        return value


def usable_in_evaluation(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the metrics but for those that read what only a training step has."""
    training_only = ("grads", "updates", "opt_state", "subgrads", "subupdates")
    unusable = [name for name, metric in metrics.items() if any(reads(metric, field) for field in training_only)]
    return {name: metric for name, metric in metrics.items() if name not in unusable} if unusable else metrics


def _num_examples(batch: Any) -> int:
    mask = padding_mask_of(batch)
    return int(np.sum(mask)) if mask is not None else len(jax.tree.leaves(batch)[0])


def _select(batch: Any, mask: np.ndarray) -> Any:
    """Returns the rows of `batch` where `mask` is True."""
    return jax.tree.map(lambda array: array[mask] if np.shape(array)[:1] == mask.shape else array, batch)
