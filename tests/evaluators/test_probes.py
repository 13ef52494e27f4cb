"""Probes: what frozen features know."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
from sklearn import linear_model, neighbors

import evaluators
from evaluators.probes import classifiers
from kauldron_core import kd, konfig, kontext
from kauldron_core.errors import ConfigError
from kauldron_core.evals import Collected, Final
from kauldron_core.forward import TrainState
from tests.evaluators import tiny

HIDDEN = "interms.Dense_0.__call__[0]"


@functools.cache
def trained() -> tuple[Any, TrainState]:
    konfig.trust("tests")
    trainer = konfig.resolve(tiny.config())
    return trainer, trainer.init_state()


def probe(kind: Any, **fields: Any) -> Any:
    trainer, _ = trained()
    fit_ds = kd.data.InMemoryPipeline(loader=tiny.load_train, batch_size=24, shuffle=True, seed=1)
    ds = kd.data.InMemoryPipeline(loader=tiny.load_test, batch_size=24)
    return kind(**{"run": Final(), "model": trainer.model, "fit_ds": fit_ds, "ds": ds, "features": HIDDEN, **fields})


def hidden(data: dict[str, np.ndarray]) -> np.ndarray:
    layer = trained()[1].params["Dense_0"]
    return np.asarray(data["x"] @ layer["kernel"] + layer["bias"], np.float64)


def accuracy(model: Any) -> float:
    train, test = tiny.load_train(), tiny.load_test()
    model.fit(hidden(train), train["label"])
    return float(np.mean(model.predict(hidden(test)) == test["label"]))


def test_ridge_is_that_of_scikit_learn() -> None:
    result = probe(evaluators.RidgeProbe, l2=3.0).evaluate(trained()[1])
    assert result.num_examples == tiny.NUM_TEST
    assert result.values == {"metrics/accuracy": accuracy(linear_model.RidgeClassifier(alpha=3.0))}
    assert result.values["metrics/accuracy"] > 0.6


def test_nearest_neighbours_are_those_of_scikit_learn() -> None:
    plain = neighbors.KNeighborsClassifier(7, metric="cosine", weights=lambda d: np.exp((1 - d) / 0.1))
    result = probe(evaluators.KnnProbe, k=7, temperature=0.1).evaluate(trained()[1])
    assert result.values == {"metrics/accuracy": accuracy(plain)}


def test_a_linear_probe_learns_the_classes() -> None:
    result = probe(evaluators.LinearProbe, features="batch.x").evaluate(trained()[1])
    assert result.values["metrics/accuracy"] > 0.75


def test_few_shots_are_so_many_of_each_class_and_the_same_each_time() -> None:
    labels = tiny.load_train()["label"]
    chosen = classifiers.few_of_each_class(labels, 5, seed=3)
    assert np.bincount(labels[chosen]).tolist() == [5, 5, 5]
    assert len(classifiers.few_of_each_class(np.array([0, 0, 1]), 5, seed=3)) == 3
    few = [probe(evaluators.RidgeProbe, shots=5, seed=seed).evaluate(trained()[1]).values for seed in (0, 0, 1)]
    assert few[0] == few[1] != few[2]


def test_with_more_features_than_examples_ridge_is_the_same() -> None:
    rng = np.random.default_rng(0)
    wide, labels = rng.normal(size=(12, 40)), rng.integers(0, 3, 12)
    plain = linear_model.RidgeClassifier(alpha=0.5).fit(wide, labels)
    found = rng.normal(size=(50, 40))
    assert (classifiers.fit_ridge(wide, labels, l2=0.5)(found) == plain.predict(found)).all()


@pytest.mark.parametrize("shard_count", [3, 110])
def test_shares_merge_to_the_whole(shard_count: int) -> None:
    whole = probe(evaluators.RidgeProbe)
    state = trained()[1]
    if shard_count > tiny.NUM_TEST:
        # A share without examples counts none.
        assert whole.collect(state, shard_index=shard_count - 1, shard_count=shard_count).num_examples == 0
        return
    shares = [whole.collect(state, shard_index=i, shard_count=shard_count) for i in range(shard_count)]
    merged = whole.result(functools.reduce(Collected.merge, shares), step=0, seconds=1.0)
    assert merged.values == whole.evaluate(state).values


def test_probes_are_evaluators_of_a_config() -> None:
    konfig.trust("tests")
    node = konfig.ConfigDict(
        {"__qualname__": "evaluators:KnnProbe", "run": tiny.node("evals.Final"), "features": HIDDEN}
    )
    node.fit_ds = tiny.config().train_ds
    node.ds = tiny.evaluator(None).ds
    trainer = konfig.resolve(konfig.from_json(konfig.to_json(tiny.config(probe=node))))
    assert trainer.evals["probe"].evaluate(trainer.init_state()).num_examples == tiny.NUM_TEST


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError, match=r"evals\.eval\.fit_ds: unset"):
        probe(evaluators.KnnProbe, fit_ds=None).evaluate(trained()[1])
    with pytest.raises(ConfigError, match=r"evals\.eval\.fit_ds: the labels are float32\[256, 5\]"):
        probe(evaluators.KnnProbe, labels="batch.x").evaluate(trained()[1])


@pytest.mark.parametrize("fields", [{"features": "interms.Dense_9.__call__[0]"}, {"labels": "batch.lable"}])
def test_a_miss_is_found_with_shapes(fields: dict[str, str]) -> None:
    """F08: a key that leads nowhere was met at the first evaluation only."""
    shapes = jax.eval_shape(lambda: trained()[1])
    probe(evaluators.RidgeProbe).trace(shapes)
    with pytest.raises(kontext.PathLookupError, match=r"Dense_9|lable"):
        probe(evaluators.RidgeProbe, **fields).trace(shapes)
