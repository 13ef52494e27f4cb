"""Many states evaluated in one program: each batch is read once, and every state gives what it gives alone."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core.errors import first_line, is_out_of_memory
from kauldron_core.evals.collecting import EvaluationStopped
from kauldron_core.evals.evaluator import Evaluator, select_rows
from kauldron_core.evals.packing import Packed, merged
from kauldron_core.evals.per_example import without_texts
from kauldron_core.evals.program import EvalForward, EvalProgram, Parts, num_rows_of, split_by_mask
from kauldron_core.evals.results import Collected, EvalResult
from kauldron_core.forward import AuxiliariesState, TrainState, padding_mask_of
from kauldron_core.metrics.host import fetch

_AT_ONCE = 32
"""Batches whose states go to the host together, as many as for one state alone: sums are made in the same order."""
_MAX_BEHIND = 8


class NotStackable(Exception):
    """The states have to be evaluated one by one; the text says why."""


class StackedEvaluation:
    """An evaluator mapped over states. Its compiled programs are kept, so it may be used again.

    Args:
      evaluator: The evaluator of one of the states.
      variant: Returns the evaluator of one state for the values of that state's numbers, which are traced. It may
        differ in model, losses, metrics and random streams, and in no names.

    Attributes:
      rows_at_once: How many states fit into memory together, as far as it was found out; None: all so far.

    Raises:
      NotStackable: If this evaluator can't be mapped.
    """

    rows_at_once: int | None = None

    def __init__(self, evaluator: Evaluator, variant: Callable[[Sequence[Any]], Evaluator] | None = None):
        why_not = _why_not(evaluator)
        if why_not:
            raise NotStackable(why_not)
        self._evaluator = evaluator
        self._variant = variant or (lambda values: evaluator)
        self._programs: tuple[_Mapped, _Mapped] | None = None
        transform = evaluator.init_transform
        self._transform = None if transform is None else jax.jit(jax.vmap(transform.transform))

    def evaluate(
        self, values: Sequence[Any], states: TrainState, *, stop: threading.Event | None = None
    ) -> list[EvalResult]:
        """Returns the result of each state. `seconds` is its share of the time that all took.

        Args:
          values: The numbers, each with a first dimension for the state.
          states: The states, of one step, with a first dimension for the state.
          stop: When set, the evaluation ends before its next batch.

        Raises:
          NotStackable: If they have to be evaluated one by one.
          EvaluationStopped: If `stop` was set.
        """
        started = time.monotonic()
        self._evaluator.check()
        step, count = int(states.step[0]), len(states.step)
        collector = _Collector(count)
        states = self._transformed(states)
        for batch in self._batches(step):
            if stop is not None and stop.is_set():
                raise EvaluationStopped(self._evaluator.name)
            self._evaluate_batch(values, states, batch, collector)
        collected = collector.finish()
        seconds = (time.monotonic() - started) / count
        with _explaining():
            return [self._evaluator.result(one, step=step, seconds=seconds) for one in collected]

    def _batches(self, step: int) -> Any:
        with contextlib.closing(self._evaluator.batches(step)) as batches:
            for _, batch in batches:
                yield without_texts(batch)

    def _transformed(self, states: TrainState) -> TrainState:
        if self._transform is None:
            return states
        with _explaining():
            jax.eval_shape(self._transform, states)
        return self._transform(states)

    def _evaluate_batch(self, values: Sequence[Any], states: TrainState, batch: Any, collector: _Collector) -> None:
        whole, unpadded = self._programs_for(values, states, batch)
        mask = padding_mask_of(batch)
        num_examples = num_rows_of(batch) if mask is None else int(np.count_nonzero(mask))
        found = whole(values, states, batch)
        if not whole.unmasked or mask is None or np.all(mask):
            collector.add(found, num_examples)
            return
        # What takes no mask has counted the padding: it runs again, on the examples alone, if there are any.
        collector.add(found, num_examples, without=whole.unmasked)
        if np.any(mask):
            collector.add(unpadded(values, states, select_rows(batch, np.asarray(mask))), 0)

    def _programs_for(self, values: Sequence[Any], states: TrainState, batch: Any) -> tuple[_Mapped, _Mapped]:
        if self._programs is None:
            spec = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), states)
            with _explaining():
                # In which parts they take a mask does not depend on numbers.
                masked, unmasked = split_by_mask(_forward_of(self._evaluator), self._evaluator.parts, spec, batch)
                whole = _Mapped(self._variant, masked, unmasked)
                whole.trace(values, states, batch)
            self._programs = whole, _Mapped(self._variant, Parts({}, {}), unmasked)
        return self._programs


class _Mapped:
    """A compiled `EvalProgram` over states."""

    def __init__(self, variant: Callable[[Sequence[Any]], Evaluator], masked: Parts, unmasked: Parts):
        self._variant = variant
        self._masked = masked
        self.unmasked = unmasked
        self._compiled = jax.jit(jax.vmap(self._one, in_axes=(0, 0, 0, 0, None)))

    def __call__(self, values: Sequence[Any], states: TrainState, batch: Any) -> Packed:
        """Returns the states of losses and metrics, with a first dimension. Does not wait for them."""
        return self._compiled(tuple(values), states.params, states.collections, states.step, batch)

    def trace(self, values: Sequence[Any], states: TrainState, batch: Any) -> None:
        """Traces it; the calls that follow use it. Raises what tracing raises."""
        jax.eval_shape(self._compiled, tuple(values), states.params, states.collections, states.step, batch)

    def _one(self, values: Sequence[Any], params: Any, collections: Any, step: Any, batch: Any) -> Packed:
        evaluator = self._variant(values)
        masked, unmasked = (_named_as(parts, evaluator.parts) for parts in (self._masked, self.unmasked))
        return EvalProgram(_forward_of(evaluator), masked, unmasked).trace(params, collections, step, batch)[0]


class _Collector:
    """The states of the batches so far, for each evaluated state."""

    def __init__(self, count: int):
        self._totals = [AuxiliariesState() for _ in range(count)]
        self._pending: list[Packed] = []
        self._is_empty = True
        self._num_examples = 0

    def add(self, packed: Packed, num_examples: int, *, without: Parts | None = None) -> None:
        """Takes what a batch gave, but for some parts."""
        self._is_empty = False
        self._num_examples += num_examples
        is_alike = not self._pending or self._pending[-1].specs == packed.specs
        if without or not is_alike:
            self._flush(len(self._pending))
        if without:
            self._merge([packed], without)
            return
        self._pending.append(packed)
        if len(self._pending) > _MAX_BEHIND:
            # The inputs of a batch stay until it is done.
            self._pending[-1 - _MAX_BEHIND].small.block_until_ready()
        if len(self._pending) >= _AT_ONCE + _MAX_BEHIND:
            self._flush(_AT_ONCE)

    def finish(self) -> list[Collected[AuxiliariesState]]:
        """Returns everything together, for each evaluated state."""
        if self._is_empty:
            raise NotStackable("there is no data")
        self._flush(len(self._pending))
        return [Collected(total, self._num_examples) for total in self._totals]

    def _flush(self, count: int) -> None:
        now, self._pending = self._pending[:count], self._pending[count:]
        if now:
            self._merge(now, None)

    def _merge(self, packed: list[Packed], without: Parts | None) -> None:
        fetched = fetch([(one.small, one.large) for one in packed])
        for row, total in enumerate(self._totals):
            own = [
                dataclasses.replace(one, small=small[row], large=[leaf[row] for leaf in large])
                for one, (small, large) in zip(packed, fetched, strict=True)
            ]
            states = merged(own)
            if without:
                states = states.without(losses=without.losses, metrics=without.metrics)
            self._totals[row] = total.merge(states)


@contextlib.contextmanager
def _explaining() -> Any:
    """Turns whatever is raised because a number is traced into `NotStackable`; memory is another matter."""
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise NotStackable(first_line(error)) from error


def _why_not(evaluator: Any) -> str:
    if type(evaluator) is not Evaluator:
        return f"a {type(evaluator).__name__} looks at one state"
    if evaluator.per_example is not None:
        return "rows of examples are kept"
    if jax.process_count() > 1:
        return "there are several hosts"
    return ""


def _forward_of(evaluator: Evaluator) -> EvalForward:
    """Returns its forward pass without its mesh: whoever stacks states says where they are."""
    return dataclasses.replace(evaluator.forward, sharding=None)


def _named_as(names: Parts, parts: Parts) -> Parts:
    """Returns those of `parts` whose names are among `names`."""
    return Parts(
        {name: parts.losses[name] for name in names.losses}, {name: parts.metrics[name] for name in names.metrics}
    )
