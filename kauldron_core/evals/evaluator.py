"""`Evaluator`: losses and metrics over a whole data set, every example counted once."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import threading
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from kauldron_core.errors import ConfigError
from kauldron_core.evals.collecting import CollectingEvaluator, EvaluationStopped, for_eval
from kauldron_core.evals.collector import Collector
from kauldron_core.evals.grouping import best_size, count_examples, grouped, is_small, stacked
from kauldron_core.evals.per_example import PerExample, without_texts
from kauldron_core.evals.program import EvalForward, EvalProgram, Parts, num_rows_of, split_by_mask
from kauldron_core.evals.results import Collected
from kauldron_core.evals.walks import EvalEpoch, FirstBatches, Walk
from kauldron_core.forward import (
    AuxiliariesState,
    ForwardPass,
    Precision,
    RngStreams,
    TrainState,
    padding_mask_of,
    reads,
)
from kauldron_core.konfig.resolving.uncalled import refuse_uncalled
from kauldron_core.losses import named_losses
from kauldron_core.sharding import ShardingStrategy


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Evaluator(CollectingEvaluator):
    """Evaluates a state over one epoch of `ds`, in stored order, the last batch padded and masked.

    One program is compiled for all batches. Losses and metrics that take no mask run on the unpadded remainder of
    the last batch, which compiles a second one. Both are kept, so an evaluator may be used again with other
    parameters of the same shapes.

    `run` says when; `ds`, `model`, `rng_streams`, `init_transform` and `name` are those of `CollectingEvaluator`.

    Attributes:
      walk: Which batches of it: `EvalEpoch()`, `FirstBatches(n)` or `RollingBatches(n)`.
      num_batches: Short for `walk=FirstBatches(num_batches)`.
      batch_size: Another batch size than that of the data.
      losses: Losses by name; the trainer's where unset.
      metrics: Metrics by name; where unset the trainer's, but for those that read gradients.
      method: Which method of the model computes `preds`; None is `__call__`.
      sharding: What is split over the devices; the trainer's where unset.
      precision: In which types the model computes; the trainer's where unset.
      dtype: Short for a `precision` that computes in this type, `'bfloat16'`; outputs come back as float32.
      discard_opt: Whether a stand-alone evaluation reads the checkpoint without the optimizer's state. Where unset it
        does so if there is no `init_transform`, which may need it.
      per_example: What to keep of each example, besides the numbers over all of them.
    """

    walk: Walk | None = None
    num_batches: int | None = None
    batch_size: int | None = None
    losses: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] | None = None
    method: str | None = None
    sharding: ShardingStrategy | None = None
    precision: Precision | None = None
    dtype: Any = None
    discard_opt: bool | None = None
    per_example: PerExample | None = None

    def __post_init__(self):
        super().__post_init__()
        for name in ("walk", "losses", "metrics", "sharding", "precision", "per_example"):
            refuse_uncalled(getattr(self, name), at=name)
        if self.walk is not None and self.num_batches is not None:
            raise ConfigError(f"evals.{self.name}: walk and num_batches both say which batches to take. Set one.")
        self._walk.check(self.run, at=f"evals.{self.name}.walk")
        if self.discard_opt and self.init_transform is not None:
            raise ConfigError(
                f"evals.{self.name}.discard_opt: the init_transform may need the optimizer's state. Unset one of them."
            )

    @property
    def needs_opt_state(self) -> bool:
        """Whether a state without the optimizer's part won't do."""
        return self.init_transform is not None if self.discard_opt is None else not self.discard_opt

    @property
    def num_data_batches(self) -> int | None:
        return self._walk.count(super().num_data_batches)

    required = ("ds", "model", "losses", "metrics")

    def check(self) -> None:
        super().check()
        # Asking for the number of processes would start JAX, too early for who initializes it later.
        if jax.distributed.is_initialized():
            self._check_hosts(self.parts.where(lambda part: not part.takes_mask))

    def trace(self, state: TrainState) -> None:
        batch, forward = without_texts(self._data().element_spec), self.forward
        state = self._transformed_shapes(state)
        masked, unmasked = split_by_mask(forward, self.parts, state, batch)
        program = EvalProgram(forward, masked, unmasked, self.per_example)
        jax.eval_shape(program.trace, state.params, state.collections, state.step, batch)

    def _transformed_shapes(self, state: TrainState) -> TrainState:
        if self.init_transform is None:
            return state
        try:
            return jax.eval_shape(self.init_transform.transform, state)
        except ConfigError:
            raise
        except Exception:  # It reads files, or looks at values: with shapes alone it can't be tried.
            return state

    def collect_share(
        self, state: TrainState, stop: threading.Event | None, shard_index: int, shard_count: int
    ) -> Collected[AuxiliariesState]:
        collector = Collector(self.per_example)
        by_rows = self._has_shares_of_rows

        sizes: list[int | None] = []

        def size_for(batch: Any) -> int | None:
            sizes.append(self._group_size(state, without_texts(batch), shard_count))
            return sizes[0]

        with contextlib.closing(self.batches(int(state.step), shard_index, shard_count)) as batches:
            for group in grouped(_stopping(batches, stop, self.name), size_for):
                if sizes[0] is not None:
                    self._evaluate_group(state, [without_texts(batch) for _, batch in group], collector)
                    continue
                for number, batch in group:
                    placed, num_examples = self._placed(batch)
                    outputs = self._evaluate_batch(state, placed, collector)
                    collector.count(num_examples, placed)
                    if self.per_example is not None:
                        rows = np.arange(num_rows_of(placed))
                        places = number * len(rows) + rows
                        collector.keep(outputs, batch, places * shard_count + shard_index if by_rows else places)
        return collector.finish(at=f"evals.{self.name}.ds")

    def _group_size(self, state: TrainState, batch: Any, shard_count: int) -> int | None:
        """Returns how many batches a call takes; None where each has one of its own."""
        is_plain = self.per_example is None and (self.sharding is None or self.sharding.is_trivial)
        if not is_plain or jax.process_count() > 1 or not is_small(batch):
            return None
        whole, _ = self._programs_for(state, batch)
        if whole.unmasked:
            return None
        if not whole.group_sizes:
            in_all = self.num_data_batches
            whole.group_sizes.append(best_size(None if in_all is None else -(-in_all // shard_count)))
        return whole.group_sizes[0]

    def _evaluate_group(self, state: TrainState, batches: list[Any], collector: Collector) -> None:
        """Gives the states of several batches of one shape to the collector."""
        whole = self._programs[0]
        stack = stacked(batches, whole.group_sizes[0])
        collector.count(count_examples(stack, len(batches)), batches[0])
        collector.add(whole.many(state, stack, len(batches)))

    def _evaluate_batch(self, state: TrainState, batch: Any, collector: Collector) -> dict[str, Any]:
        """Gives the states of a batch to the collector, and returns what is kept of each row."""
        whole, unpadded = self._programs_for(state, batch)
        states, outputs = whole(state, batch)
        mask = padding_mask_of(batch)
        if not whole.unmasked or mask is None or np.all(mask):
            collector.add(states)
            return outputs
        # What takes no mask has counted the padding: it runs again, on the examples alone, if there are any.
        collector.add(states, without=whole.unmasked)
        if np.any(mask):
            collector.add(unpadded(state, select_rows(batch, np.asarray(mask)))[0])
        return outputs

    def _placed(self, batch: Any) -> tuple[Any, int]:
        """Returns the batch on the devices, without what can't be there, and the number of examples in it."""
        batch, mask = without_texts(batch), padding_mask_of(batch)
        num_examples = num_rows_of(batch) if mask is None else int(np.count_nonzero(mask))
        if self.sharding is None or self.sharding.is_trivial:
            return batch, num_examples
        if jax.process_count() > 1:
            num_examples = int(np.sum(multihost_utils.process_allgather(np.int32(num_examples))))
        return self.sharding.put_batch(batch, uneven_ok=True), num_examples

    def share_programs(self, programs: list[EvalProgram]) -> None:
        """Uses the compiled programs in `programs`, or fills it: those of an evaluator that computes the same."""
        vars(self)["_programs"] = programs

    def _programs_for(self, state: TrainState, batch: Any) -> tuple[EvalProgram, EvalProgram]:
        """Returns the program for every batch, and the one for the remainder of what takes no mask."""
        if not self._programs:
            forward = self.forward
            masked, unmasked = split_by_mask(forward, self.parts, state, batch)
            self._check_hosts(unmasked)
            whole = EvalProgram(forward, masked, unmasked, self.per_example)
            self._programs.extend([whole, EvalProgram(forward, Parts({}, {}), unmasked)])
        whole, unpadded = self._programs
        return whole, unpadded

    def _check_hosts(self, unmasked: Parts) -> None:
        if jax.process_count() == 1:
            return
        if unmasked:
            names = ", ".join([*unmasked.losses, *unmasked.metrics])
            raise ConfigError(
                f"evals.{self.name}: {names}: without a `mask` argument they need the unpadded remainder, and there is "
                "none with several hosts. Give their `get_state` a mask."
            )
        if self.per_example is not None:
            raise ConfigError(f"evals.{self.name}.per_example: rows are kept on one host only, and there are several.")

    @functools.cached_property
    def _programs(self) -> list[EvalProgram]:
        """The two programs, once the first batch has shown which parts take its mask."""
        return []

    @functools.cached_property
    def parts(self) -> Parts:
        """Its losses and metrics."""
        return Parts(dict(named_losses(self.require("losses"))), self.require("metrics"))

    @functools.cached_property
    def forward(self) -> EvalForward:
        """Its forward pass, traceable."""
        readers = [*self.parts.losses.values(), *self.parts.metrics.values()]
        if self.per_example is not None:
            readers.append(self.per_example)
        model, rng_streams = self.require("model"), self.rng_streams or RngStreams()
        precision = self.precision if self.dtype is None else Precision(compute=self.dtype)
        forward = ForwardPass(model, rng_streams, readers, method=self.method, precision=precision)
        return EvalForward(forward, self.sharding)

    @property
    def _walk(self) -> Walk:
        return self.walk or (EvalEpoch() if self.num_batches is None else FirstBatches(self.num_batches))

    def batches(self, step: int, shard_index: int = 0, shard_count: int = 1) -> Any:
        """Yields the batches of the evaluation at `step`, with their numbers.

        Of a share, these are their numbers in what it is a share of: the rows of the data, or its batches.
        """
        is_of_rows = self._has_shares_of_rows
        ds = shard_of(self._data(), shard_index, shard_count) if is_of_rows else self._data()
        batches = self._walk.batches(ds, run=self.run, step=step)
        return batches if is_of_rows else _every(batches, shard_index, shard_count)

    @property
    def _takes_all(self) -> bool:
        return isinstance(self._walk, EvalEpoch)

    @property
    def _has_shares_of_rows(self) -> bool:
        """Whether a share is every n-th row, and not every n-th batch of those that the walk takes."""
        return isinstance(self._walk, EvalEpoch)

    def _data(self) -> Any:
        ds = self.require("ds")
        if self.batch_size is not None:
            ds = dataclasses.replace(ds, batch_size=self.batch_size)
        return for_eval(ds)


def shard_of(ds: Any, shard_index: int, shard_count: int) -> Any:
    """Returns one of `shard_count` disjoint shares of `ds`, with as many examples in a batch as `ds` has."""
    if shard_count == 1:
        return ds
    return dataclasses.replace(
        ds, batch_size=ds.batch_size * shard_count, shard_index=shard_index, shard_count=shard_count
    )


def _stopping(batches: Iterator[Any], stop: threading.Event | None, name: str) -> Iterator[Any]:
    """Yields the batches; raises instead of the next one when `stop` is set."""
    for batch in batches:
        if stop is not None and stop.is_set():
            raise EvaluationStopped(name)
        yield batch


def _every(batches: Generator[Any], start: int, step: int) -> Generator[Any]:
    with contextlib.closing(batches):
        yield from itertools.islice(batches, start, None, step)


def usable_in_evaluation(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the metrics but for those that read what only a training step has."""
    training_only = ("grads", "updates", "opt_state", "subgrads", "subupdates")
    unusable = [name for name, metric in metrics.items() if any(reads(metric, field) for field in training_only)]
    return {name: metric for name, metric in metrics.items() if name not in unusable} if unusable else metrics


def select_rows(batch: Any, mask: np.ndarray) -> Any:
    """Returns the rows of `batch` where `mask` is True."""
    return jax.tree.map(lambda array: array[mask] if np.shape(array)[:1] == mask.shape else array, batch)
