"""Metrics as descriptions: keys, masks, padding, parents, and what a definition must not do."""

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron_core import kontext, metrics
from kauldron_core.metrics import AverageState, Metric, State, to_host


@dataclasses.dataclass(frozen=True, kw_only=True)
class Maskless(Metric):
    values: kontext.Key = kontext.REQUIRED

    @flax.struct.dataclass
    class State(AverageState["Maskless"]): ...

    def get_state(self, values):
        return self.State.from_values(values)


def test_every_public_name_exists():
    for name in metrics.__all__:
        assert getattr(metrics, name) is not None


def test_a_metric_computes_from_a_context_or_from_arguments():
    metric = metrics.Average(values="batch.x")
    assert float(metric(context={"batch": {"x": np.arange(3.0)}})) == 1
    assert float(metric(values=np.arange(5.0))) == 2
    with pytest.raises(TypeError, match="not both: context and values"):
        metric(context={}, values=1)


def test_keys_are_checked_against_get_state():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Wrong(Metric):
        value: kontext.Key = "x"

        def get_state(self, values):
            return AverageState.from_values(values)

    with pytest.raises(TypeError, match=r"Wrong .*unknown key 'value'\. Did you mean 'values'\?"):
        Wrong().get_state_from_context({"x": 1.0})


def test_get_state_and_empty_set_the_parent_unless_it_is_set():
    metric = Maskless(values="x")
    assert metric.get_state(values=np.ones(3)).parent == metric
    assert metric.empty().parent == metric

    class Outer(Maskless):
        def get_state(self, values):
            return metric.get_state(values=values)

    assert Outer(values="y").get_state(values=np.ones(3)).parent == metric


def test_the_parent_holds_no_arrays_so_that_states_compare_and_hash():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Scaled(Maskless):
        scale: Any = 1.0

        def __post_init__(self):
            if not hasattr(self.scale, "__mul__"):
                raise TypeError

    def state(scale):
        inner = metrics.SkipIfMissing(metric=Scaled(values="x", scale=scale))
        return inner.get_state_from_context({"x": jnp.ones(3)})

    structure = jax.tree.structure(jax.jit(lambda: state(jnp.float32(2)))())
    # JAX compares the static parts of what goes in and out of a compiled function.
    assert structure == jax.tree.structure(jax.jit(lambda: state(jnp.float32(3)))())
    assert hash(structure) is not None
    assert state(2.0).parent.metric.scale == 2.0


def test_a_metric_without_mask_says_so_and_refuses_padding():
    metric = Maskless(values="x")
    assert not metric.takes_mask
    assert float(metric.get_state_from_context({"x": np.ones(3)}).compute()) == 1
    with pytest.raises(TypeError, match="Maskless takes no mask"):
        metric.get_state_from_context({"x": np.ones(3)}, padding_mask=np.ones(3, bool))
    assert not metrics.accepts_padding(metric, {"x": np.ones(3)}, np.ones(3, bool))


def test_a_mask_need_not_be_a_key_to_take_the_padding():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class NoKey(Metric):
        values: kontext.Key = kontext.REQUIRED

        @flax.struct.dataclass
        class State(AverageState["NoKey"]): ...

        def get_state(self, values, mask=None):
            return self.State.from_values(values, mask)

    state = NoKey(values="x").get_state_from_context({"x": np.arange(3.0)}, padding_mask=np.array([True, True, False]))
    assert float(state.compute()) == 0.5


def test_what_is_the_same_for_all_examples_ignores_the_padding():
    context = {"params": {"kernel": np.ones((5, 4))}, "preds": {"x": np.ones((3, 4))}}
    mask = np.array([True, False, False])
    norm = metrics.Norm(tensor="params.kernel", axis=None)
    assert int(norm.get_state_from_context(context, padding_mask=mask).count) == 1
    tree = metrics.TreeMap(metric=metrics.Norm(tensor="params.**.kernel"))
    assert tree.get_state_from_context(context, padding_mask=mask).compute() == {"kernel": 2.0}
    preds = metrics.Norm(tensor="preds.x", axis=None)
    assert not metrics.accepts_padding(preds, context, mask)
    with pytest.raises(metrics.MaskError):
        preds.get_state_from_context(context, padding_mask=mask)
    # The norm over the batch leaves no examples either, though it has as many values as there are.
    square = {"preds": {"x": np.ones((3, 3))}}
    assert not metrics.accepts_padding(metrics.Norm(tensor="preds.x", axis=0), square, mask)
    assert metrics.accepts_padding(metrics.Norm(tensor="preds.x"), square, mask)


def test_accepts_padding_takes_shapes_only_and_lets_other_errors_through():
    shapes = {"x": jax.ShapeDtypeStruct((3,), jnp.float32)}
    mask = jax.ShapeDtypeStruct((3,), jnp.bool_)
    assert metrics.accepts_padding(metrics.Average(values="x"), shapes, mask)
    with pytest.raises(KeyError):
        metrics.accepts_padding(metrics.Average(values="y"), shapes, mask)


def test_a_metric_defines_get_state_and_its_state_is_a_flax_dataclass():
    with pytest.raises(TypeError, match="a metric defines get_state; compute belongs to its State"):

        class Computes(Metric):
            def compute(self): ...

    with pytest.raises(TypeError, match=r"Undecorated\.State: decorate the state with @flax\.struct\.dataclass"):

        class Undecorated(Metric):
            class State(AverageState): ...

    with pytest.raises(TypeError, match="abstract"):
        Metric()


def test_noop_metric():
    noop = metrics.NoopMetric()
    assert noop.takes_mask
    assert noop.get_state_from_context({}, padding_mask=np.ones(3, bool)).merge(noop.empty()).compute() == {}


# --- Wrappers


def test_tree_map_gives_a_tree_of_values_and_shares_single_arrays():
    context = {
        "params": {"a": {"kernel": np.full((2, 3), 2.0), "bias": np.ones(3)}, "b": [{"kernel": np.full((2, 2), 3.0)}]},
        "rows": np.array([True, False]),
    }
    metric = metrics.TreeMap(metric=metrics.Average(values="params.**.kernel", mask="rows"))
    state = metric.get_state_from_context(context)
    assert state.compute() == {"a": {"kernel": 2.0}, "b": [{"kernel": 3.0}]}
    merged = to_host(state).merge(state).merge(metric.empty())
    assert merged.tree["a"]["kernel"].count == 6
    assert metrics.TreeMap(metric=metrics.Average(values="params.a"))(context=context) == {"kernel": 2.0, "bias": 1.0}


def test_tree_map_over_several_trees_pairs_their_leaves():
    context = {"x": {"a": np.ones(2), "b": np.zeros(2)}, "y": {"a": np.zeros(2), "b": np.zeros(2)}}
    assert metrics.TreeMap(metric=metrics.Mae(preds="x.*", targets="y.*"))(context=context) == {"a": 1.0, "b": 0.0}


def test_tree_reduce_is_one_value_over_all_leaves():
    params = {"a": np.array([3.0, 0.0]), "b": {"c": np.array([[0.0], [4.0]])}}
    norm = metrics.Norm(tensor="params", axis=None, aggregation_type="concat")
    assert float(metrics.TreeReduce(metric=norm)(context={"params": params})) == pytest.approx(5.0)
    with pytest.raises(KeyError, match=r"TreeReduce\.tensor: params"):
        metrics.TreeReduce(metric=norm)(context={})


def test_skip_if_missing_gives_nothing_where_keys_are_missing():
    metric = metrics.SkipIfMissing(metric=metrics.Average(values="batch.extra"))
    missing = metric.get_state_from_context({"batch": {}}, padding_mask=np.ones(2, bool))
    present = metric.get_state_from_context({"batch": {"extra": np.ones(2)}})
    assert missing.compute() == {}
    assert missing.merge(present).merge(missing).compute() == 1.0
    assert to_host(missing).merge(missing).compute() == {}
    with pytest.raises(ValueError, match="required keys are not set"):
        metrics.SkipIfMissing(metric=metrics.Average()).get_state_from_context({})


def test_skip_if_missing_does_not_hide_an_error_of_the_metric():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Faulty(Maskless):
        def get_state(self, values):
            raise KeyError("a fault of the metric")

    with pytest.raises(KeyError, match="a fault of the metric"):
        metrics.SkipIfMissing(metric=Faulty(values="x")).get_state_from_context({"x": 1})


def test_weighted_average_multiplies_a_mask_the_metric_has():
    inner = metrics.Average(values="x", mask="m")
    metric = metrics.WeightedAverage(metric=inner, weights="w")
    context = {"x": np.array([1.0, 2.0, 4.0]), "m": np.array([True, True, False]), "w": np.array([1.0, 3.0, 9.0])}
    assert metric.takes_mask
    assert float(metric(context=context)) == pytest.approx(7 / 4)
    padded = metric.get_state_from_context(context, padding_mask=np.array([False, True, True]))
    assert float(padded.compute()) == 2.0
    with pytest.raises(ValueError, match="Maskless takes no mask"):
        metrics.WeightedAverage(metric=Maskless(values="x"), weights="w")


# --- A metric of one's own, as in a notebook


def test_a_custom_metric_of_ten_lines_works_in_jit_vmap_grad_and_scan():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Closeness(Metric):
        preds: kontext.Key = kontext.REQUIRED
        targets: kontext.Key = kontext.REQUIRED

        @flax.struct.dataclass
        class State(AverageState): ...

        def get_state(self, preds, targets, mask=None):
            return self.State.from_values(jnp.exp(-((preds - targets) ** 2)), mask)

    metric, x, y = Closeness(preds="preds", targets="batch"), jnp.arange(6.0).reshape(3, 2), jnp.ones((3, 2))
    wanted = float(np.exp(-np.square(np.asarray(x) - 1)).mean())
    jitted = jax.jit(lambda x, y: metric.get_state_from_context({"preds": x, "batch": y}))
    assert float(jitted(x, y).compute()) == pytest.approx(wanted)
    rows = jax.vmap(lambda x, y: metric.get_state(preds=x, targets=y))(x, y)
    assert float(merge_rows(rows).compute()) == pytest.approx(wanted)
    gradient = jax.grad(lambda x: metric(preds=x, targets=y))(x)
    assert gradient.shape == x.shape
    assert float(gradient[0, 0]) > 0
    total, _ = jax.lax.scan(lambda state, row: (state.merge(jitted(*row)), None), metric.empty(), (x, y))
    assert float(total.compute()) == pytest.approx(wanted)


def merge_rows(stacked: State) -> State:
    """Returns the merge of the states that vmap stacked."""
    states = [jax.tree.map(lambda leaf, index=index: leaf[index], stacked) for index in range(3)]
    return metrics.reduce_states(states)
