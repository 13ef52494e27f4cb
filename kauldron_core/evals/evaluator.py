"""`Evaluator`: losses and metrics over a whole data set, every example counted once."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from kauldron_core.errors import ConfigError
from kauldron_core.evals.program import EvalProgram
from kauldron_core.evals.run_strategies import RunStrategy
from kauldron_core.forward import AuxiliariesState, ForwardPass, RngStreams, TrainState, padding_mask_of, reads


class EvaluationStopped(Exception):
    """Somebody asked the evaluation to end; there is no result."""


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
      name: Its key in `trainer.evals`, set there.
    """

    run: RunStrategy
    ds: Any = None
    num_batches: int | None = None
    losses: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] | None = None
    model: Any = None
    rng_streams: RngStreams | None = None
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
        total, num_examples = AuxiliariesState(), 0
        running: AuxiliariesState | None = None
        for batch in self._batches():
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
        whole, unpadded = self._programs
        states = whole(state, batch)
        mask = padding_mask_of(batch)
        if unpadded.is_empty or mask is None or np.all(mask):
            return states
        # What takes no mask has counted the padding: it runs again, on the examples alone.
        states = states.without(losses=unpadded.losses, metrics=unpadded.metrics)
        return states.merge(unpadded(state, _select(batch, np.asarray(mask))))

    @functools.cached_property
    def _programs(self) -> tuple[EvalProgram, EvalProgram]:
        """The program for every batch, and the one for what takes no mask on the remainder."""
        losses, metrics = self._require("losses"), self._require("metrics")
        forward = ForwardPass(
            self._require("model"), self.rng_streams or RngStreams(), (*losses.values(), *metrics.values())
        )
        unmasked = EvalProgram(forward, _without_mask(losses), _without_mask(metrics))
        if jax.process_count() > 1 and not unmasked.is_empty:
            names = ", ".join([*unmasked.losses, *unmasked.metrics])
            raise ConfigError(
                f"evals.{self.name}: {names} take no mask, and with several hosts there is no unpadded remainder to "
                "run them on. Give their `get_state` a `mask` argument."
            )
        return EvalProgram(forward, losses, metrics), unmasked

    def _batches(self) -> Iterator[Any]:
        ds = self._require("ds")
        ds = ds.for_eval() if hasattr(ds, "for_eval") else ds
        return iter(ds if self.num_batches is None else ds.take(self.num_batches))

    def _require(self, field: str) -> Any:
        value = getattr(self, field)
        if value is None:
            raise ConfigError(
                f"evals.{self.name}.{field}: unset. Give it, or put the evaluator into the `evals` of a Trainer that has it."
            )
        return value


def usable_in_evaluation(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metrics but for those that read what only a training step has."""
    training_only = ("grads", "updates", "opt_state")
    return {
        name: metric for name, metric in metrics.items() if not any(reads(metric, field) for field in training_only)
    }


def _num_examples(batch: Any) -> int:
    mask = padding_mask_of(batch)
    return int(np.sum(mask)) if mask is not None else len(jax.tree.leaves(batch)[0])


def _without_mask(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if not part.takes_mask}


def _select(batch: Any, mask: np.ndarray) -> Any:
    """Returns the rows of `batch` where `mask` is True."""
    return jax.tree.map(lambda array: array[mask] if np.shape(array)[:1] == mask.shape else array, batch)
