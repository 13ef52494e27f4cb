"""Evaluations against NumPy on the plain arrays: any size, batch, number of hosts and of devices.

As a script, with eight devices forced, it tries 150 of them.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.struct
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kauldron_core import kd, kontext
from kauldron_core.errors import ConfigError
from kauldron_core.evals import Collected, Evaluator, Final
from kauldron_core.forward import TrainState

BATCH_SIZES = (8, 16, 24, 32)
MAX_SIZE = 70


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen(kd.metrics.Metric):
    """Which examples were seen, their smallest and largest value, and how many: one field of each kind."""

    ids: kontext.Key = "batch.id"
    values: kontext.Key = "batch.y"

    @flax.struct.dataclass
    class State(kd.metrics.AutoState):
        ids: Any = kd.metrics.concat_field()
        is_real: Any = kd.metrics.concat_field()
        count: Any = kd.metrics.sum_field()
        least: Any = kd.metrics.min_field()
        most: Any = kd.metrics.max_field()

        def compute(self):
            values = super().compute()
            return {
                "ids": np.sort(values.ids[values.is_real]),
                "count": values.count,
                "range": (values.least, values.most),
            }

    def get_state(self, ids, values, mask=None):
        mask = jnp.ones(ids.shape, bool) if mask is None else mask
        return self.State(
            ids=ids,
            is_real=mask,
            count=mask.sum(dtype=jnp.int32),
            least=jnp.where(mask, values, jnp.inf).min(),
            most=jnp.where(mask, values, -jnp.inf).max(),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unmasked(kd.metrics.Metric):
    """A metric of ten lines that takes no mask."""

    values: kontext.Key = "batch.id"

    @flax.struct.dataclass
    class State(kd.metrics.AutoState):
        rows: Any = kd.metrics.sum_field()
        total: Any = kd.metrics.sum_field()

    def get_state(self, values):
        return self.State(rows=jnp.int32(values.shape[0]), total=values.sum())


@functools.cache
def arrays(size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(size)
    return {
        "id": np.arange(size, dtype=np.int32),
        "x": rng.normal(size=(size, 3)).astype(np.float32),
        "y": rng.normal(size=size).astype(np.float32),
        "label": rng.integers(0, 3, size).astype(np.int32),
        "wanted": rng.random(size) < 0.7,
    }


@dataclasses.dataclass(frozen=True)
class Sized:
    """Data of the size that `Sized.size` has at the moment, so that evaluators stay, with what they have compiled."""

    batch_size: int
    num_devices: int
    shard_index: int = 0
    shard_count: int = 1

    size = 0

    def __iter__(self):
        ds = kd.data.InMemoryPipeline(
            loader=functools.partial(arrays, Sized.size),
            batch_size=self.batch_size,
            shard_index=self.shard_index,
            shard_count=self.shard_count,
        )
        mesh = Mesh(np.array(jax.devices()[: self.num_devices]), ("batch",))
        for batch in ds.for_eval():
            yield jax.device_put(batch, NamedSharding(mesh, PartitionSpec("batch")))


@functools.cache
def evaluator(batch_size: int, num_devices: int, has_unmasked: bool) -> Evaluator:
    keys = {"logits": "batch.x", "labels": "batch.label"}
    metrics = {
        "accuracy": kd.metrics.Accuracy(**keys),
        "f1": kd.metrics.F1(**keys, average="macro"),
        "std": kd.metrics.Std(values="batch.y"),
        "seen": Seen(),
    }
    return Evaluator(
        run=Final(),
        ds=Sized(batch_size, num_devices),
        model=kd.nn.DummyModel(),
        losses={
            "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(**keys),
            "some": kd.losses.Value(values="batch.y", mask="batch.wanted", weight=2.0),
        },
        metrics={**metrics, "unmasked": Unmasked()} if has_unmasked else metrics,
    )


STATE = TrainState.create(params={}, collections={}, opt_state=())


def check(size: int, batch_size: int, shard_count: int, num_devices: int, has_unmasked: bool) -> None:
    """Compares an evaluation with NumPy."""
    Sized.size = size
    whole = evaluator(batch_size, num_devices, has_unmasked)

    def evaluate() -> kd.evals.EvalResult:
        shares = [whole.collect(STATE, shard_index=i, shard_count=shard_count) for i in range(shard_count)]
        return whole.result(functools.reduce(Collected.merge, shares), step=0, seconds=1.0)

    if size == 0:
        with pytest.raises(ConfigError, match="empty"):
            evaluate()
        return
    result, data = evaluate(), arrays(size)
    states = {name: state.compute() for name, state in result.states.metric_states.items()}
    hits = data["x"].argmax(-1) == data["label"]
    assert result.num_examples == size
    assert (states["seen"]["ids"] == data["id"]).all() and len(states["seen"]["ids"]) == size
    assert states["seen"]["count"] == size
    assert states["seen"]["range"] == (data["y"].min(), data["y"].max())
    accuracy = result.states.metric_states["accuracy"]
    assert (accuracy.total, accuracy.count) == (hits.sum(), size)
    logits = data["x"].astype(np.float64)
    xent = np.log(np.exp(logits).sum(-1)) - logits[data["id"], data["label"]]
    some = data["y"][data["wanted"]].astype(np.float64)
    expected = {
        "losses/xent": xent.mean(),
        "losses/some": 2 * some.mean() if len(some) else 0.0,
        "metrics/std": data["y"].astype(np.float64).std(),
        "metrics/f1": _macro_f1(data["label"], data["x"].argmax(-1)),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(result.values[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    if has_unmasked:
        assert (states["unmasked"].rows, states["unmasked"].total) == (size, data["id"].sum())


def _macro_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    occurring = np.union1d(labels, predictions)
    both = [2 * np.sum((labels == label) & (predictions == label)) for label in occurring]
    either = [np.sum(labels == label) + np.sum(predictions == label) for label in occurring]
    return float(np.mean(np.divide(both, either)))


def cases(*num_devices: int) -> st.SearchStrategy[tuple[int, int, int, int, bool]]:
    def of(batch_size: int) -> Any:
        # Without a mask each remainder is a shape of its own to compile, so that only the smallest batch has it.
        unmasked = st.booleans() if batch_size == min(BATCH_SIZES) else st.just(False)
        sizes, shards = st.integers(0, MAX_SIZE), st.sampled_from([1, 2, 4])
        return st.tuples(sizes, st.just(batch_size), shards, st.sampled_from(num_devices), unmasked)

    return st.sampled_from(BATCH_SIZES).flatmap(of)


if __name__ == "__main__":
    assert len(jax.devices()) == 8

    @hypothesis.settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @hypothesis.given(cases(1, 2, 4, 8))
    def everywhere(case: tuple[int, int, int, int, bool]) -> None:
        check(*case)

    everywhere()
    print("exact")
