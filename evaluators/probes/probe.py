"""Probes as evaluators: linear, ridge (few-shot) and k nearest neighbours on frozen features."""

from __future__ import annotations

import abc
import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from evaluators.probes import classifiers
from evaluators.probes.features import FeatureKeys, Features, make_program, read_features
from kauldron_core import kontext
from kauldron_core.evals import Collected, CollectingEvaluator, shard_of
from kauldron_core.evals.per_example import without_texts
from kauldron_core.forward import AuxiliariesState, RngStreams, TrainState
from kauldron_core.metrics import AverageState
from kauldron_core.rundir import Better


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Probe(CollectingEvaluator):
    """Base class of probes: evaluators that fit a classifier on the features of `fit_ds` and test it on `ds`.

        cfg.evals.probe = evaluators.RidgeProbe(
            run=kd.evals.StandaloneLastCheckpoint(),
            fit_ds=cfg.ref.train_ds,
            features="interms.Dense_0.__call__[0]",
            shots=10,
        )

    The model stays as it is. The value is `metrics/accuracy`.

    Attributes:
      fit_ds: The data that the classifier is fitted on, one epoch in stored order.
      features: Key of the features, `preds` or an inner output, `interms.encoder.__call__[0]`; flattened.
      labels: Key of the classes.
      shots: Fit on so many examples of each class only; None takes all.
      seed: Which ones.
    """

    fit_ds: Any = None
    features: kontext.Key = "preds"
    labels: kontext.Key = "batch.label"
    shots: int | None = None
    seed: int = 0

    required = ("fit_ds", "ds", "model")

    @property
    def directions(self) -> Mapping[str, Better]:
        return {"metrics/accuracy": "higher"}

    def trace(self, state: TrainState) -> None:
        for ds in (self.fit_ds, self.ds):
            batch = without_texts(ds.for_eval().element_spec)
            jax.eval_shape(self._program, state.params, state.collections, state.step, batch)

    @abc.abstractmethod
    def fit(self, known: Features) -> classifiers.Predict:
        """Returns the fitted classifier."""

    def collect_share(
        self, state: TrainState, stop: threading.Event | None, shard_index: int, shard_count: int
    ) -> Collected[AuxiliariesState]:
        at = f"evals.{self.name}"
        read = functools.partial(read_features, self._program, state, stop=stop)
        predict = self.fit(self._chosen(read(self.fit_ds.for_eval(), at=f"{at}.fit_ds")))
        found = read(shard_of(self.ds.for_eval(), shard_index, shard_count), at=f"{at}.ds")
        hits = predict(found.features) == found.labels if len(found.labels) else np.zeros(0, bool)
        accuracy = AverageState(total=np.asarray(hits.sum()), count=np.asarray(hits.size))
        return Collected(AuxiliariesState(metric_states={"accuracy": accuracy}), hits.size)

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
