"""States: exact on the host, whoever wrote them; the merge rules of AutoState; what refuses to merge."""

import dataclasses
import functools
import pickle
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron_core import kontext, metrics
from kauldron_core.metrics import (
    EMPTY,
    AutoState,
    AverageState,
    Metric,
    State,
    concat_field,
    max_field,
    min_field,
    reduce_states,
    state_field,
    static_field,
    sum_field,
    to_host,
    truncate_field,
)


def test_uneven_batches_average_by_their_size():
    """M02: uneven batches average by their size."""
    states = [
        AverageState.from_values(np.arange(size) < round(size * accuracy))
        for size, accuracy in ((256, 0.7), (256, 0.8), (10, 0.9))
    ]
    assert [float(state.compute()) for state in states] == pytest.approx([0.7, 0.8, 0.9], abs=3e-3)
    exact = reduce_states(states).compute()
    assert exact == (179 + 205 + 9) / 522
    assert exact == pytest.approx(0.752874, abs=1e-6)


def test_weights_that_differ_between_batches():
    """M04: weights that differ between batches."""
    values = [np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])]
    weights = [np.array([0.1, 0.9]), np.array([10.0, 0.0, 2.5])]
    merged = reduce_states([AverageState.from_values(v, w) for v, w in zip(values, weights, strict=True)])
    assert merged.compute() == pytest.approx(np.average(np.concatenate(values), weights=np.concatenate(weights)))


def test_a_batch_of_two_arrays_weighs_its_rows_and_not_its_keys():
    """M06: a batch of two arrays weighs its rows and not its keys."""
    batch = {"a": np.ones((7, 3)), "b": np.zeros(7)}
    one = metrics.Average(values="batch.b").get_state_from_context({"batch": batch})
    both = metrics.TreeReduce(metric=metrics.Average(values="batch.*")).get_state_from_context({"batch": batch})
    assert int(one.count) == 7
    assert int(both.count) == 7 * 3 + 7


def test_a_count_stays_exact_past_2_to_the_24():
    """M08: a count stays exact past 2 to the 24."""
    hit = to_host(AverageState.from_values(np.array([True, False, True])))
    big = to_host(AverageState.from_values(np.ones(2**20, bool)))
    merged = functools.reduce(State.merge, [big] * 2**5 + [hit] * 1000)
    assert int(merged.count) == 2**25 + 3000
    assert int(merged.total) == 2**25 + 2000
    assert merged.compute() == (2**25 + 2000) / (2**25 + 3000)


def test_a_mean_does_not_drift():
    """M08: a mean does not drift."""
    state = AverageState.from_values(np.full(5000, 0.1, np.float32))
    merged = reduce_states([state] * 5_000)
    assert int(merged.count) == 25_000_000
    assert merged.compute() == pytest.approx(to_host(state).compute(), rel=1e-12)


@flax.struct.dataclass
class Counter(AutoState):
    """As a user writes it, in float32 and with a JAX function in compute."""

    hits: jax.Array = sum_field()
    weight: jax.Array = sum_field()

    def compute(self):
        return {"hits": jnp.add(self.hits, 0), "weight": jnp.asarray(self.weight) * 1}


@flax.struct.dataclass
class HandWritten(State):
    """A state that a user merges by hand, with JAX functions."""

    hits: jax.Array
    weight: jax.Array

    @classmethod
    def empty(cls):
        return cls(hits=jnp.zeros((), jnp.int32), weight=jnp.zeros(()))

    def merge(self, other):
        return type(self)(hits=jnp.add(self.hits, other.hits), weight=jnp.add(self.weight, other.weight))

    def compute(self):
        return {"hits": jnp.add(self.hits, 0), "weight": jnp.asarray(self.weight) * 1}


@pytest.mark.parametrize("cls", [Counter, HandWritten])
def test_a_users_own_state_counts_past_2_to_the_24_whatever_its_dtypes(cls):
    """M08: a users own state counts past 2 to the 24 whatever its dtypes."""
    big = jax.jit(lambda: cls(hits=jnp.asarray(2**30, jnp.int32), weight=jnp.asarray(2.0**24, jnp.float32)))()
    one = jax.jit(lambda: cls(hits=jnp.asarray(1, jnp.int32), weight=jnp.asarray(1.0, jnp.float32)))()
    merged = reduce_states([big, big, big, cls.empty(), one, one, one])
    values = merged.compute()
    assert int(values["hits"]) == 3 * 2**30 + 3
    assert float(values["weight"]) == 3 * 2.0**24 + 3
    # One host state among device states is enough.
    assert int(to_host(big).merge(big).merge(big).compute()["hits"]) == 3 * 2**30


def test_states_in_bfloat16_do_not_stop_growing():
    state = Counter(hits=jnp.asarray(True), weight=jnp.asarray(1.0, jnp.bfloat16))
    values = reduce_states([state] * 1000).compute()
    assert (int(values["hits"]), float(values["weight"])) == (1000, 1000.0)


@flax.struct.dataclass
class Counts(AutoState):
    count: jax.Array = sum_field()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Count(Metric):
    """How many examples there are, in a type that a user chose."""

    values: Any = "batch.values"
    dtype: Any = jnp.float32

    State = Counts

    def get_state(self, values):
        return self.State(count=jnp.ones(values.shape[:1], bool).sum().astype(self.dtype))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.int8, jnp.uint8, jnp.bool_, jnp.float32, jnp.int32])
def test_a_count_is_exact_wherever_states_merge(dtype):
    """F06: a count in bfloat16 stopped at 256, one in int8 wrapped around, and one of booleans raised in a scan."""
    metric = Count(dtype=dtype)

    def add(state, values):
        return state.merge(metric.get_state(values)), None

    examples = jnp.zeros((1024, 1))
    state, _ = jax.lax.scan(add, metric.get_state(examples[0]), examples[1:])
    assert int(state.compute().count) == int(state.count) == 1024
    by_hand = jax.jit(lambda state: state.merge(state))(Counts(count=jnp.asarray(100, dtype)))
    assert int(by_hand.count) == (2 if dtype == jnp.bool_ else 200)


def test_booleans_add_up_on_the_device_too():
    state = Counter(hits=jnp.asarray(True), weight=jnp.asarray([True, False]))
    merged = jax.jit(lambda state: state.merge(state).merge(state))(state)
    assert int(merged.hits) == 3
    assert merged.weight.tolist() == [3, 0]


def test_integers_and_booleans_are_summed_exactly_in_a_batch():
    rng = np.random.default_rng(0)
    for values in (
        rng.integers(0, 255, 100_001, np.uint8),
        rng.random(2**24 + 11) < 0.5,
        np.arange(1001, dtype=np.int16),
    ):
        state = AverageState.from_values(values)
        assert jnp.issubdtype(state.total.dtype, jnp.integer)
        assert int(state.total) == values.sum(dtype=np.int64)
        assert int(state.count) == values.size


def test_integers_that_might_overflow_are_summed_as_floats():
    values = np.full(10, 2**31 - 1, np.int32)
    assert float(AverageState.from_values(values).compute()) == pytest.approx(2**31 - 1)


def test_low_precision_is_summed_in_float32():
    values = jnp.full(4096, 0.1, jnp.bfloat16)
    assert float(AverageState.from_values(values).compute()) == pytest.approx(float(values[0]), rel=1e-6)


def test_a_small_mask_counts_for_all_it_is_extended_to():
    state = AverageState.from_values(np.full((2, 5), 2.5), np.array([True, False]))
    assert (float(state.compute()), int(state.count)) == (2.5, 5)
    assert float(AverageState.from_values(np.ones((2, 5)), np.array([[0.5]])).count) == 5.0


@pytest.mark.parametrize("mask", [np.zeros(3, bool), np.zeros(3)])
def test_no_values_average_to_0(mask):
    assert float(AverageState.empty().compute()) == 0
    assert float(to_host(AverageState.empty()).compute()) == 0
    assert float(AverageState.from_values(np.full(3, np.nan), mask).compute()) == 0
    assert float(AverageState.from_values(np.zeros((0, 4))).compute()) == 0


def test_states_accumulate_inside_scan():
    def step(state, values):
        return state.merge(AverageState.from_values(values > 0)), None

    state, _ = jax.lax.scan(step, AverageState.empty().replace(total=jnp.int32(0)), jnp.arange(-5.0, 5.0).reshape(5, 2))
    assert (int(state.total), int(state.count)) == (4, 10)


@flax.struct.dataclass
class Everything(AutoState):
    total: Any = sum_field()
    least: Any = min_field()
    most: Any = max_field()
    rows: Any = concat_field()
    columns: Any = concat_field(axis=1)
    first: Any = truncate_field(num_field="keep")
    inner: Any = state_field()
    keep: int = 3
    name: str = static_field("x")


def everything(start, **changes):
    values = np.arange(start, start + 2, dtype=np.float32)
    fields = {
        "total": {"a": values, "b": [np.int32(start)]},
        "least": values,
        "most": values,
        "rows": values,
        "columns": values[:, None],
        "first": values.astype(np.uint8),
        "inner": AverageState.from_values(values),
    }
    return Everything(**{**fields, **changes})


def test_auto_state_merges_each_field_by_its_rule():
    values = everything(0).merge(everything(10)).merge(everything(20)).compute()
    assert values.total["a"].tolist() == [30, 33]
    assert values.total["b"] == [30]
    assert (values.least.tolist(), values.most.tolist()) == ([0, 1], [20, 21])
    assert values.rows.tolist() == [0, 1, 10, 11, 20, 21]
    assert values.columns.tolist() == [[0, 10, 20], [1, 11, 21]]
    assert values.first.tolist() == [0, 1, 10]
    assert values.inner == 10.5
    assert (values.keep, values.name) == (3, "x")


def test_collected_fields_keep_their_dtype():
    values = to_host(everything(0)).merge(everything(1)).compute()
    assert (values.first.dtype, values.rows.dtype) == (np.uint8, np.float32)
    assert values.total["b"][0].dtype == np.int64


def test_fields_without_a_rule_are_static_and_must_be_equal():
    assert jax.jit(lambda state: state)(everything(0)).name == "x"
    for change in ({"keep": 4}, {"name": "y"}):
        with pytest.raises(ValueError, match=f"Everything.{next(iter(change))}: static fields have to be equal"):
            everything(0).merge(everything(1, **change))


def test_truncation_works_without_a_merge_and_is_exact_at_the_edge():
    state = everything(0, first=np.arange(8), keep=5)
    assert state.compute().first.tolist() == [0, 1, 2, 3, 4]
    full = everything(0, first=np.arange(5), keep=5)
    assert full.merge(full).compute().first.tolist() == [0, 1, 2, 3, 4]


def test_none_merges_with_none_only():
    both = everything(0, rows=None, total=None, first=None, inner=None)
    values = both.merge(both).compute()
    assert (values.rows, values.total, values.first, values.inner) == (None, None, None, None)
    for field, verb in {"rows": "concatenate", "total": "sum", "first": "truncate", "inner": "merge"}.items():
        with pytest.raises(ValueError, match=f"Cannot {verb} None"):
            everything(0).merge(everything(0, **{field: None}))


def test_shapes_that_differ_do_not_broadcast_in_a_sum():
    with pytest.raises(ValueError, match=r"Cannot minimize shapes \(2,\) and \(1,\)"):
        everything(0).merge(everything(0, least=np.zeros(1, np.float32)))


def test_empty_is_a_pytree_without_leaves_and_one_object():
    empty = Everything.empty()
    assert jax.tree.leaves(empty) == []
    assert jax.jit(lambda state: state)(empty).total == EMPTY
    assert pickle.loads(pickle.dumps(EMPTY)) is EMPTY
    assert empty.merge(empty).total is EMPTY
    assert to_host(empty).rows is EMPTY


def test_an_empty_state_with_a_compute_of_its_own_says_that_there_is_no_data():
    with pytest.raises(ValueError, match=r"Counter: no data was merged"):
        Counter.empty().compute()


def test_collecting_states_do_not_merge_inside_jit():
    with pytest.raises(TypeError, match=r"Everything: states that collect arrays cannot merge inside jit"):
        jax.jit(lambda state: state.merge(state))(everything(0))


def test_merging_many_collecting_states_is_not_quadratic_in_copies():
    states = [everything(index) for index in range(300)]
    merged = functools.reduce(State.merge, states)
    assert len(merged.rows.arrays) == 300
    assert merged.compute().rows.shape == (600,)


def test_finalize_gives_whole_numpy_arrays():
    merged = everything(0).merge(everything(10)).finalize()
    assert isinstance(merged.rows, np.ndarray)
    assert merged.rows.tolist() == [0, 1, 10, 11]
    assert merged.merge(everything(20)).compute().rows.tolist() == [0, 1, 10, 11, 20, 21]


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeepFirst(Metric):
    images: kontext.Key = kontext.REQUIRED
    num: int = 2

    @flax.struct.dataclass
    class State(AutoState["KeepFirst"]):
        images: jax.Array = truncate_field(num_field="parent.num")

    def get_state(self, images):
        return self.State(images=images)


def test_fields_refer_to_the_parent_metric():
    metric = KeepFirst(images="batch", num=3)
    states = [metric.get_state(images=np.full((2, 1), index)) for index in range(3)]
    assert metric.empty().merge(states[0]).merge(states[1]).merge(states[2]).compute().images.ravel().tolist() == [
        0,
        0,
        1,
    ]
    assert metric(images=np.zeros((5, 1))).images.shape == (3, 1)
    assert not metric.takes_mask


def test_a_users_compute_sees_whole_arrays_in_64_bits():
    @flax.struct.dataclass
    class Own(AutoState):
        rows: jax.Array = concat_field()
        total: jax.Array = sum_field()

        def compute(self):
            data = super().compute()
            assert (self.rows == data.rows).all()
            return self.rows.sum() / self.total

    state = Own(rows=jnp.arange(4.0), total=jnp.asarray(2, jnp.int32))
    assert state.merge(state).merge(state).compute() == 3.0


def test_states_of_another_class_or_metric_refuse_to_merge():
    with pytest.raises(TypeError, match="cannot merge a Counter with a HandWritten"):
        Counter.empty().merge(HandWritten.empty())
    one, other = KeepFirst(images="a"), KeepFirst(images="b")
    with pytest.raises(
        ValueError, match=r"cannot merge states of different metrics: KeepFirst\(images='a'.* and KeepFirst"
    ):
        one.empty().merge(other.empty())
    assert one.State.empty().merge(one.empty()).parent == one


def test_to_host_takes_trees_of_states_and_arrays():
    tree = {"a": AverageState.from_values(np.ones(3)), "b": [jnp.ones(2, jnp.float32), 3], "c": None}
    host = to_host(tree)
    assert isinstance(host["a"].total, np.ndarray | np.generic)
    assert host["b"][0].dtype == np.float32
    assert host["c"] is None


def test_reduce_states_needs_one():
    with pytest.raises(ValueError, match="at least one"):
        reduce_states([])


def test_empty_state():
    state = metrics.EmptyState.empty()
    assert state.merge(state).compute() == {}
