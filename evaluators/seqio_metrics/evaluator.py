"""`SeqioEvaluator`: the numbers that `seqio.Evaluator` gives, from a model of ours."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from evaluators.decode import DecodeProgram, Decoder
from evaluators.seqio_metrics.likelihood import LogLikelihood
from evaluators.seqio_metrics.outputs import TaskOutputs
from evaluators.seqio_metrics.tasks import INDEX, EvalTask, eval_tasks, packing_refusal
from kauldron_core.errors import ConfigError
from kauldron_core.evals import Collected, CollectingEvaluator, EvalResult, EvaluationStopped, shard_of
from kauldron_core.evals.per_example import without_texts
from kauldron_core.forward import AuxiliariesState, Context, ForwardPass, RngStreams, TrainState, padding_mask_of
from kauldron_core.metrics.directions import check_better
from kauldron_core.metrics.host import fetch
from kauldron_core.rundir import Better


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SeqioEvaluator(CollectingEvaluator):
    """Evaluates the metrics of a SeqIO task or mixture.

        cfg.evals.wmt = evaluators.SeqioEvaluator(
            run=kd.evals.StandaloneEveryCheckpoint(),
            ds=kd.data.SeqIO("wmt", feature_lengths={...}, feature_converter="enc_dec", batch_size=64),
            decoder=evaluators.Beam(width=4, max_len=128),
        )

    Predict metrics get what the decoder finds, score metrics the log-likelihood of the target. Each output is joined
    with its target by the example's place in the task, so every example counts once, whatever the batches and hosts.
    The values are `metrics/<task>/<metric>`.

    Attributes:
      decoder: How to predict; only predict metrics need one.
      score: How to score; only score metrics need it.
      batch_size: Another batch size than that of the data, a `kd.data.SeqIO`.
      num_examples: Use the first so many examples of each task.
      keep_examples: So many examples of each task are kept as a table: input, target, prediction, score.
      better: What is better of the metrics, which SeqIO's own don't say, by name: `{"bleu": "higher"}`, or of one task
        `{"wmt/bleu": "higher"}`. Only what ranks by one asks for it.
    """

    decoder: Decoder | None = None
    score: LogLikelihood = dataclasses.field(default_factory=LogLikelihood)
    batch_size: int | None = None
    num_examples: int | None = None
    keep_examples: int = 100
    better: Mapping[str, Better] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        super().__post_init__()
        check_better(self.better, at=f"evals.{self.name}.better")
        if getattr(self.ds, "pack", False):
            raise ConfigError(packing_refusal(f"evals.{self.name}"))

    @property
    def directions(self) -> Mapping[str, Better]:
        return {f"metrics/{name if '/' in name else f'*/{name}'}": one for name, one in self.better.items()}

    def trace(self, state: TrainState) -> None:
        for task in self._tasks:
            batch = without_texts(self._data_of(task).element_spec)
            self._check_index(batch)
            if "tokens" in task.needed:
                self._decode.trace(state, batch)
            if "likelihood" in task.needed:
                jax.eval_shape(self._likelihood, state.params, state.collections, state.step, batch)

    def collect_share(
        self, state: TrainState, stop: threading.Event | None, shard_index: int, shard_count: int
    ) -> Collected[AuxiliariesState]:
        outputs = {}
        for task in self._tasks:
            ds = shard_of(self._data_of(task), shard_index, shard_count)
            with contextlib.closing(iter(ds)) as batches:
                outputs[task.name] = self._outputs(task, state, batches, stop)
        num_examples = sum(len(found.by_example) for found in outputs.values())
        return Collected(AuxiliariesState(metric_states=outputs), num_examples)

    def result(self, collected: Collected[AuxiliariesState], *, step: int, seconds: float) -> EvalResult:
        started = time.monotonic()
        states, examples = {}, []
        for task in self._tasks:
            outputs: TaskOutputs = collected.states.metric_states[task.name]
            states[task.name] = dataclasses.replace(outputs, values=task.compute(outputs))
            examples += task.rows(outputs, self.keep_examples)
        states = AuxiliariesState(metric_states=states)
        return EvalResult(
            name=self.name,
            step=step,
            states=states,
            values=states.scalars(),
            num_examples=sum(len(task.examples) for task in self._tasks),
            seconds=seconds + time.monotonic() - started,
            examples=examples or None,
            better=self.directions,
        )

    def _outputs(self, task: EvalTask, state: TrainState, batches: Any, stop: threading.Event | None) -> TaskOutputs:
        by_example: dict[int, Mapping[str, Any]] = {}
        for batch in batches:
            if stop is not None and stop.is_set():
                raise EvaluationStopped(self.name)
            self._check_index(batch)
            said = fetch(self._said(task.needed, state, batch))
            for row in np.flatnonzero(fetch(padding_mask_of(batch))).tolist():
                by_example[int(fetch(batch[INDEX])[row])] = {name: values[row] for name, values in said.items()}
        return TaskOutputs(by_example)

    def _data_of(self, task: EvalTask) -> Any:
        ds = task.ds if self.batch_size is None else dataclasses.replace(task.ds, batch_size=self.batch_size)
        return ds.for_eval()

    def _check_index(self, batch: Any) -> None:
        if INDEX not in batch:
            raise ConfigError(
                f"evals.{self.name}.ds.transforms: they drop {INDEX!r}, by which outputs and targets are joined. "
                f"Keep it: Elements(keep=[..., {INDEX!r}])."
            )

    def _said(self, needed: frozenset[str], state: TrainState, batch: Any) -> dict[str, jax.Array]:
        said: dict[str, jax.Array] = {}
        if "tokens" in needed:
            decoded = self._decode(state, batch, row_ids=batch[INDEX])
            # One sequence is what most metrics expect; several are a list for each example.
            pick: Any = 0 if decoded.tokens.shape[1] == 1 else slice(None)
            said |= {"tokens": decoded.tokens[:, pick], "token_scores": decoded.scores[:, pick]}
        if "likelihood" in needed:
            said["likelihood"] = self._likelihood(state.params, state.collections, state.step, batch)
        return said

    @functools.cached_property
    def _tasks(self) -> list[EvalTask]:
        at = f"evals.{self.name}"
        if not hasattr(self.ds, "provider"):
            raise ConfigError(f"{at}.ds: {type(self.ds).__name__} has no SeqIO task. Use kd.data.SeqIO.")
        tasks = eval_tasks(self.ds, limit=self.num_examples, at=at)
        predicting = [task.name for task in tasks if "tokens" in task.needed]
        if predicting and self.decoder is None:
            raise ConfigError(
                f"{at}.decoder: unset, and the metrics of task {predicting[0]!r} need predictions. "
                "Give one: evaluators.Greedy(max_len=...)."
            )
        return tasks

    @functools.cached_property
    def _decode(self) -> DecodeProgram:
        if self.decoder is None:
            raise ConfigError(f"evals.{self.name}.decoder: unset.")
        return DecodeProgram(self.model, self.decoder, self.rng_streams or RngStreams())

    @functools.cached_property
    def _likelihood(self) -> Callable[..., jax.Array]:
        forward = ForwardPass(self.model, self.rng_streams or RngStreams(), (self.score,))

        def likelihood(params: Any, collections: Any, step: Any, batch: Any) -> jax.Array:
            context = Context(step=step, batch=batch, params=params, collections=collections)
            return self.score.of(forward.evaluate(context))

        return jax.jit(likelihood)
