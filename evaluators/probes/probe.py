"""Probes as evaluators: linear, ridge (few-shot) and k nearest neighbours on frozen features."""

from __future__ import annotations

import abc
import dataclasses
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from evaluators.probes import classifiers
from evaluators.probes.features import FeatureKeys, Features, make_program, read_features
from kauldron_core import kontext
from kauldron_core.errors import ConfigError
from kauldron_core.evals import Collected, EvalResult, RunStrategy, shard_of
from kauldron_core.forward import AuxiliariesState, RngStreams, TrainState
from kauldron_core.metrics import AverageState


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Probe(abc.ABC):
    """Base class of probes: evaluators that fit a classifier on the features of `fit_ds` and test it on `ds`.

        cfg.evals.probe = evaluators.RidgeProbe(
            run=kd.evals.StandaloneLastCheckpoint(),
            fit_ds=cfg.ref.train_ds,
            features="interms.Dense_0.__call__[0]",
            shots=10,
        )

    The model stays as it is. The value is `metrics/accuracy`.

    Attributes:
      run: When it runs.
      fit_ds: The data that the classifier is fitted on, one epoch in stored order.
      ds: The data that it is tested on; the trainer's `eval_ds` where unset.
      features: Key of the features, `preds` or an inner output, `interms.encoder.__call__[0]`; flattened.
      labels: Key of the classes.
      shots: Fit on so many examples of each class only; None takes all.
      seed: Which ones.
      model: The model; the trainer's where unset.
      rng_streams: The random streams; the trainer's where unset.
      init_transform: Changes the state before it is evaluated: `kd.optim.UseEmaParams()` evaluates the average.
      name: Its key in `trainer.evals`, set there.
    """

    run: RunStrategy
    fit_ds: Any = None
    ds: Any = None
    features: kontext.Key = "preds"
    labels: kontext.Key = "batch.label"
    shots: int | None = None
    seed: int = 0
    model: Any = None
    rng_streams: RngStreams | None = None
    init_transform: Any = None
    name: str = "eval"

    @property
    def needs_opt_state(self) -> bool:
        """Whether a state without the optimizer's part won't do."""
        return self.init_transform is not None

    def check(self) -> None:
        """Raises a `ConfigError` if the data or the model is missing."""
        for field in ("fit_ds", "ds", "model"):
            if getattr(self, field) is None:
                raise ConfigError(f"evals.{self.name}.{field}: unset, and a probe needs it.")

    @abc.abstractmethod
    def fit(self, known: Features) -> classifiers.Predict:
        """Returns the fitted classifier."""

    def evaluate(self, state: TrainState, *, stop: threading.Event | None = None) -> EvalResult:
        """Returns the accuracy of the fitted classifier.

        Args:
          state: The state; it is not changed.
          stop: When set, the evaluation ends before its next batch.

        Raises:
          EvaluationStopped: If `stop` was set.
          ConfigError: If there is no data, or the labels are no classes.
        """
        started = time.monotonic()
        collected = self.collect(state, stop=stop)
        return self.result(collected, step=int(state.step), seconds=time.monotonic() - started)

    def collect(
        self, state: TrainState, *, stop: threading.Event | None = None, shard_index: int = 0, shard_count: int = 1
    ) -> Collected[AuxiliariesState]:
        """Returns the hits on one share of `ds`, fitted on all of `fit_ds`. See `Evaluator.collect`."""
        self.check()
        if self.init_transform is not None:
            state = self.init_transform.transform(state)
        at = f"evals.{self.name}"
        read = functools.partial(read_features, self._program, state, stop=stop)
        predict = self.fit(self._chosen(read(self.fit_ds.for_eval(), at=f"{at}.fit_ds")))
        found = read(shard_of(self.ds.for_eval(), shard_index, shard_count), at=f"{at}.ds")
        hits = predict(found.features) == found.labels if len(found.labels) else np.zeros(0, bool)
        accuracy = AverageState(total=np.asarray(hits.sum()), count=np.asarray(hits.size))
        return Collected(AuxiliariesState(metric_states={"accuracy": accuracy}), hits.size)

    def result(self, collected: Collected[AuxiliariesState], *, step: int, seconds: float) -> EvalResult:
        """Returns the numbers of what was collected."""
        states, num_examples = collected.states, collected.num_examples
        return EvalResult(self.name, step, states, states.scalars(), num_examples, seconds)

    def _chosen(self, known: Features) -> Features:
        if self.shots is None:
            return known
        chosen = classifiers.few_of_each_class(known.labels, self.shots, self.seed)
        return Features(known.features[chosen], known.labels[chosen])

    @functools.cached_property
    def _program(self) -> Callable[..., Any]:
        return make_program(self.model, self.rng_streams or RngStreams(), FeatureKeys(self.features, self.labels))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RidgeProbe(Probe):
    """Least squares on the classes, with a penalty: exact and quick, the usual few-shot probe.

    Attributes:
      l2: Weight of the penalty.
    """

    l2: float = 1.0

    def fit(self, known: Features) -> classifiers.Predict:
        return classifiers.fit_ridge(known.features, known.labels, l2=self.l2)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LinearProbe(Probe):
    """Multinomial logistic regression on standardized features.

    Attributes:
      l2: Weight of the penalty.
      max_steps: Steps of the solver at most.
    """

    l2: float = 1.0
    max_steps: int = 1_000

    def fit(self, known: Features) -> classifiers.Predict:
        return classifiers.fit_logistic(known.features, known.labels, l2=self.l2, max_steps=self.max_steps)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class KnnProbe(Probe):
    """The vote of the nearest examples, by cosine: nothing is learned.

    Attributes:
      k: How many vote.
      temperature: Small values give the nearest more weight.
    """

    k: int = 20
    temperature: float = 0.07

    def fit(self, known: Features) -> classifiers.Predict:
        return classifiers.fit_knn(known.features, known.labels, k=self.k, temperature=self.temperature)
