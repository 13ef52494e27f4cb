"""A SeqIO task as evaluation data: its examples, its batches with the place of each example, its metrics."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from evaluators.seqio_metrics.outputs import TaskOutputs
from kauldron_core import data
from kauldron_core.errors import ConfigError, RunFailed

INDEX = "example_index"
"""Key of an example's place in its task, in batches."""

NEEDED = {
    "PREDICTION": ("tokens",),
    "PREDICTION_WITH_AUX": ("tokens", "token_scores"),
    "SCORE": ("likelihood",),
}
"""Outputs that a kind of metric needs."""


@dataclasses.dataclass(frozen=True)
class NumberedSeqIO(data.SeqIO):
    """The data of one task, each example with its place.

    Attributes:
      limit: How many examples there are at most.
    """

    limit: int | None = None

    def open_epoch(self, epoch: int) -> Iterator[Any]:
        examples = super().open_epoch(epoch)
        try:
            for index, example in zip(range(self.limit or 2**31), examples, strict=False):
                yield {**example, INDEX: np.int32(index)}
        finally:
            close = getattr(examples, "close", None)
            if close is not None:
                close()


@dataclasses.dataclass(frozen=True, eq=False)
class EvalTask:
    """One task of a pipeline, with metrics.

    Attributes:
      task: The SeqIO task.
      ds: Its batches.
    """

    task: Any
    ds: NumberedSeqIO

    @property
    def name(self) -> str:
        return self.task.name

    @functools.cached_property
    def needed(self) -> frozenset[str]:
        """The outputs that its metrics need."""
        return frozenset(itertools.chain(*(NEEDED[_kind(metric)] for metric in self.task.metric_objs)))

    @functools.cached_property
    def examples(self) -> list[dict[str, Any]]:
        """The examples as the task gives them, before they become model features."""
        dataset = self.task.get_dataset(
            sequence_length=self.ds.feature_lengths,
            split=self.ds.split,
            use_cached=self.ds.use_cached,
            shuffle=False,
            seed=self.ds.seed or 0,
            num_epochs=1,
        )
        return list(itertools.islice(dataset.as_numpy_iterator(), self.ds.limit))

    def compute(self, outputs: TaskOutputs) -> dict[str, float]:
        """Returns the task's metrics, as `seqio.Evaluator` computes them."""
        import seqio

        values: dict[str, float] = {}
        for metric in self.task.metric_objs:
            found = self._compute(metric, outputs, seqio.metrics.CollectingMetric)
            for name, value in found.items():
                if name in values:
                    raise RunFailed(f"task {self.name!r}: two of its metrics give {name!r}.")
                values[name] = value
        return {name: float(number) for name, value in values.items() if (number := _number(value)) is not None}

    def rows(self, outputs: TaskOutputs, limit: int) -> list[dict[str, Any]]:
        """Returns the first examples as a person reads them: input, target, prediction, score."""
        feature = self.task.output_features["targets"]
        found = []
        for index, example in enumerate(self.examples[:limit]):
            said = outputs.by_example[index]
            row = {"task": self.name, "id": index}
            if "inputs_pretokenized" in example:
                row["input"] = _text(example["inputs_pretokenized"])
            target = example.get("targets_pretokenized", feature.vocabulary.decode(list(example["targets"])))
            row["target"] = _text(target)
            if "tokens" in said:
                row["prediction"] = feature.vocabulary.decode(np.atleast_2d(said["tokens"])[0].tolist())
            if "likelihood" in said:
                row["score"] = float(said["likelihood"])
            found.append(row)
        return found

    def _compute(self, metric: Any, outputs: TaskOutputs, collecting: Any) -> Mapping[str, Any]:
        arrays = {name: outputs.stacked(name, len(self.examples), task=self.name) for name in NEEDED[_kind(metric)]}
        said: Any = arrays.get("tokens", arrays.get("likelihood"))
        if "token_scores" in arrays:
            said = (said, {"scores": arrays["token_scores"]})
        instance = metric.from_model_output(self.examples, said, self.task.output_features)
        if isinstance(instance, collecting):
            return instance.actual_compute(self.examples, self.task.output_features)[0]
        return instance.compute()


def eval_tasks(ds: data.SeqIO, *, limit: int | None, at: str) -> list[EvalTask]:
    """Returns the tasks of a pipeline that have metrics and its split.

    Raises:
      ConfigError: If there is none, or its metrics can't be computed.
    """
    import seqio

    tasks = [task for task in seqio.get_subtasks(ds.provider) if ds.split in task.splits and task.metric_objs]
    if not tasks:
        raise ConfigError(f"{at}.ds: {ds.provider.name!r} has no task with metrics and a split {ds.split!r}.")
    if getattr(ds.converter, "pack", False):
        raise ConfigError(packing_refusal(at))
    for task in tasks:
        for metric in task.metric_objs:
            if _kind(metric) not in NEEDED:
                raise ConfigError(
                    f"{at}.ds: task {task.name!r}: a metric wants {_kind(metric)}, which is not computed here. "
                    f"Available: {', '.join(NEEDED)}."
                )
    fields = {field.name: getattr(ds, field.name) for field in dataclasses.fields(data.SeqIO)}
    return [EvalTask(task, NumberedSeqIO(**{**fields, "task": task}, limit=limit)) for task in tasks]


def packing_refusal(at: str) -> str:
    """Returns why packed data has no SeqIO metrics."""
    return (
        f"{at}.ds.pack: SeqIO's metrics join one target with one output, and a packed row holds several examples. "
        "Set pack=False."
    )


def _kind(metric: Any) -> str:
    return metric.model_output_type.name


def _number(value: Any) -> Any:
    """Returns the number in a metric's value; None for texts, images and the like."""
    value = getattr(value, "value", value)
    is_number = np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number)
    return value if is_number else None


def _text(value: Any) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
