"""The in-memory pipeline: order, state, remainders and what is refused."""

import dataclasses
import json
import pickle

import jax
import numpy as np
import pytest

from kauldron_core import data
from kauldron_core.errors import ConfigError


def numbers(count):
    return {"id": np.arange(count), "x": np.arange(count * 3, dtype=np.float32).reshape(count, 3)}


def pipeline(count=10, **settings):
    return data.InMemoryPipeline(loader=lambda: numbers(count), **settings)


def ids(ds):
    return [batch["id"].tolist() for batch in ds]


def test_making_a_pipeline_opens_no_data_and_the_loader_runs_once_for_all_variants():
    calls = []

    def load():
        calls.append(1)
        return numbers(10)

    ds = data.InMemoryPipeline(loader=load, batch_size=4, num_epochs=1)
    variants = [ds, ds.for_eval(), ds.take(1), dataclasses.replace(ds, seed=3, shuffle=True)]
    assert not calls
    for variant in variants:
        list(variant)
        len(variant)
        assert variant.element_spec
    assert len(calls) == 1


def test_order_is_philox_jumped_by_the_epoch():
    ds = pipeline(10, batch_size=5, shuffle=True, seed=7, num_epochs=3)
    expected = []
    for epoch in range(3):
        order = np.arange(10)
        np.random.Generator(np.random.Philox(key=7).jumped(epoch)).shuffle(order)
        expected += order.tolist()
    assert np.concatenate(ids(ds)).tolist() == expected


def test_batches_go_on_across_epochs():
    assert ids(pipeline(3, batch_size=2, num_epochs=2)) == [[0, 1], [2, 0], [1, 2]]


@pytest.mark.parametrize("mode", [True, "drop"])
def test_drop_gives_full_batches_and_len_says_so(mode):
    """D08: drop gives full batches and len says so."""
    ds = pipeline(46, batch_size=8, num_epochs=1, batch_drop_remainder=mode)
    assert len(ds) == 5
    assert [len(batch) for batch in ids(ds)] == [8] * 5


@pytest.mark.parametrize("mode", [False, "keep"])
def test_keep_gives_a_smaller_last_batch(mode):
    ds = pipeline(10, batch_size=4, num_epochs=1, batch_drop_remainder=mode)
    assert ids(ds) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(ds) == 3


def test_pad_fills_up_with_the_first_example_and_tells_by_a_mask():
    ds = pipeline(10, batch_size=4, num_epochs=1, batch_drop_remainder="pad")
    batches = list(ds)
    assert [batch[data.PADDING_MASK].tolist() for batch in batches] == [
        [True] * 4,
        [True] * 4,
        [True, True, False, False],
    ]
    assert batches[-1]["id"].tolist() == [8, 9, 0, 0]
    assert len(ds) == 3
    assert ds.element_spec[data.PADDING_MASK] == jax.ShapeDtypeStruct((4,), np.bool_)


def test_sizes_that_divide_evenly_keep_the_last_batch():
    """E04: sizes that divide evenly keep the last batch."""
    ds = pipeline(512, batch_size=16, num_epochs=1).for_eval()
    assert sum(int(batch[data.PADDING_MASK].sum()) for batch in ds) == 512
    assert len(ds) == 32


def test_for_eval_of_a_training_pipeline_is_one_whole_epoch_in_stored_order():
    """E02, E18: for eval of a training pipeline is one whole epoch in stored order."""
    train = pipeline(10, batch_size=4, shuffle=True, seed=1)
    for _ in range(2):
        seen = [batch["id"][batch[data.PADDING_MASK]] for batch in train.for_eval()]
        assert np.concatenate(seen).tolist() == list(range(10))


def test_element_spec_is_of_the_global_batch_also_on_one_of_two_hosts():
    ds = pipeline(10, batch_size=4, shard_index=1, shard_count=2)
    assert ds.element_spec["x"] == jax.ShapeDtypeStruct((4, 3), np.float32)
    assert next(iter(ds))["x"].shape == (2, 3)


@pytest.mark.parametrize("consumed", [0, 1, 4, 7])
def test_state_gives_the_very_next_batch_in_any_epoch(consumed):
    """D06: state gives the very next batch in any epoch."""
    ds = pipeline(10, batch_size=4, shuffle=True, seed=5, num_epochs=4)
    iterator = iter(ds)
    for _ in range(consumed):
        next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))
    resumed = iter(ds)
    resumed.set_state(state)
    assert ids(resumed) == ids(ds)[consumed:] == ids(iterator)


def test_state_can_be_set_back_on_an_iterator_in_use():
    iterator = iter(pipeline(10, batch_size=4, seed=5, shuffle=True))
    state = iterator.get_state()
    first = next(iterator)
    next(iterator)
    iterator.set_state(state)
    np.testing.assert_array_equal(next(iterator)["id"], first["id"])


@pytest.mark.parametrize(
    ("change", "named"),
    [({"seed": 6}, "seed=5"), ({"batch_size": 5}, "batch_size=4"), ({"shuffle": False}, "shuffle=True")],
)
def test_state_of_another_order_is_refused_with_both_values(change, named):
    ds = pipeline(10, batch_size=4, seed=5, shuffle=True)
    iterator = iter(dataclasses.replace(ds, **change))
    with pytest.raises(ConfigError, match=named):
        iterator.set_state(iter(ds).get_state())


def test_more_epochs_continue_from_an_old_state():
    ds = pipeline(8, batch_size=4, num_epochs=1)
    iterator = iter(ds)
    list(iterator)
    longer = iter(dataclasses.replace(ds, num_epochs=2))
    longer.set_state(iterator.get_state())
    assert ids(longer) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_take_ends_early_and_never_lengthens():
    ds = pipeline(10, batch_size=4, num_epochs=1, batch_drop_remainder="pad")
    assert len(ds.take(2)) == len(list(ds.take(2))) == 2
    assert len(ds.take(9)) == 3
    assert len(ds.take(2).take(5)) == 2
    assert len(pipeline(10, batch_size=4).take(7)) == 7


def test_map_over_batches_keeps_the_iterator_checkpointable():
    """D14: map over batches keeps the iterator checkpointable."""
    ds = pipeline(10, batch_size=4).map(lambda batch: {"id": batch["id"] + 100})
    iterator = iter(ds)
    next(iterator)
    resumed = iter(ds)
    resumed.set_state(iterator.get_state())
    assert next(resumed)["id"].tolist() == next(iterator)["id"].tolist() == [104, 105, 106, 107]
    assert ds.element_spec.keys() == {"id"}


def test_closed_iterator_yields_nothing_and_still_has_a_state():
    iterator = iter(pipeline(10, batch_size=4))
    next(iterator)
    iterator.close()
    assert list(iterator) == []
    assert iterator.get_state()["next_batch"] == 1


def test_device_put_gives_global_arrays():
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    batch = next(iter(pipeline(10, batch_size=4).device_put(sharding)))
    assert isinstance(batch["x"], jax.Array) and batch["x"].sharding == sharding
    np.testing.assert_array_equal(batch["id"], [0, 1, 2, 3])


def test_batches_are_copies_of_the_data():
    ds = pipeline(8, batch_size=4, num_epochs=2)
    for batch in ds:
        batch["id"][:] = -1
    assert ids(ds)[0] == [0, 1, 2, 3]


def test_pickle_carries_settings_not_data():
    ds = data.InMemoryPipeline(loader=_million, batch_size=4, shuffle=True, seed=0)
    first = next(iter(ds))
    copy = pickle.loads(pickle.dumps(ds))
    assert copy == ds
    assert len(pickle.dumps(ds)) < 5000
    np.testing.assert_array_equal(next(iter(copy)), first)


def _million():
    return np.arange(1_000_000)


def test_seed_is_needed_only_where_it_matters():
    assert next(iter(pipeline(8, batch_size=4)))
    with pytest.raises(ConfigError, match=r"no seed.*dataclasses.replace\(ds, seed=0\)"):
        iter(pipeline(8, batch_size=4, shuffle=True))


def test_with_seed_fills_in_only_what_is_unset():
    assert pipeline(8).with_seed(3).seed == 3
    assert pipeline(8, seed=1).with_seed(3).seed == 1


def test_an_endless_pipeline_has_no_len_but_is_true():
    ds = pipeline(10, batch_size=4)
    assert ds
    with pytest.raises(TypeError, match=r"take\(n\)"):
        len(ds)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 2.0}, "batch_size is 2.0"),
        ({"num_epochs": 0}, "num_epochs is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"batch_drop_remainder": "pads"}, "'pad'"),
        ({"batch_drop_remainder": 1}, "batch_drop_remainder is 1"),
        ({"shard_index": 0}, "both"),
    ],
)
def test_impossible_settings_are_refused_when_made(settings, message):
    with pytest.raises(ConfigError, match=message):
        pipeline(10, **settings)


@pytest.mark.parametrize(
    ("count", "settings", "message"),
    [
        (0, {"batch_size": 4, "batch_drop_remainder": "pad"}, "empty"),
        (0, {"batch_size": 4}, "empty"),
        (10, {}, "no batch_size"),
        (3, {"batch_size": 4, "num_epochs": 1}, "do not fill one batch"),
        (10, {"batch_size": 5, "shard_index": 0, "shard_count": 2}, "divisible"),
        (10, {"batch_size": 4, "shard_index": 2, "shard_count": 2}, "shard_index=2"),
        (10, {"batch_size": 4, "batch_drop_remainder": False, "shard_index": 0, "shard_count": 2}, "'pad'"),
    ],
)
def test_impossible_data_is_refused_before_the_first_batch(count, settings, message):
    ds = pipeline(count, **settings)
    with pytest.raises(ConfigError, match=message):
        iter(ds)
    with pytest.raises(ConfigError, match=message):
        len(ds)


@pytest.mark.parametrize("mode", [True, False])
def test_more_shards_than_examples_is_an_error(mode):
    """D12: more shards than examples is an error."""
    ds = pipeline(3, batch_size=10, shard_index=0, shard_count=10, batch_drop_remainder=mode)
    with pytest.raises(ConfigError, match="10 shards of 3 examples"):
        iter(ds)


def test_under_pad_a_host_without_examples_pads():
    """D12: under pad a host without examples pads."""
    ds = pipeline(3, batch_size=10, shard_index=7, shard_count=10, num_epochs=1, batch_drop_remainder="pad")
    (batch,) = ds
    assert batch["id"].tolist() == [0]
    assert batch[data.PADDING_MASK].tolist() == [False]


@pytest.mark.parametrize(
    ("loaded", "message"),
    [
        ({"a": np.zeros(3), "b": np.zeros(4)}, "a: 3, b: 4"),
        ({"a": np.zeros(3), "b": np.float32(1)}, "b is a scalar"),
        ({}, "no arrays"),
    ],
)
def test_data_that_is_no_tree_of_arrays_is_refused(loaded, message):
    with pytest.raises(ConfigError, match=message):
        iter(data.InMemoryPipeline(loader=lambda: loaded, batch_size=1))


def test_padding_needs_a_dictionary_without_that_key():
    with pytest.raises(ConfigError, match="dictionaries"):
        list(data.InMemoryPipeline(loader=lambda: np.arange(3), batch_size=2).for_eval())
    with pytest.raises(ConfigError, match="'padding_mask'"):
        list(data.InMemoryPipeline(loader=lambda: {"padding_mask": np.arange(3)}, batch_size=2).for_eval())


def test_text_has_no_element_spec_and_the_message_says_how_to_drop_it():
    ds = data.InMemoryPipeline(loader=lambda: {"name": np.array(["a", "bc"])}, batch_size=2)
    assert next(iter(ds))["name"].tolist() == ["a", "bc"]
    with pytest.raises(ConfigError, match=r"Elements\(drop=\['name'\]\)"):
        _ = ds.element_spec


def test_a_batch_larger_than_the_data_is_warned_of_once(caplog):
    ds = data.InMemoryPipeline(loader=lambda: {"x": np.arange(3)}, batch_size=5)
    for _ in range(2):
        assert len(next(iter(ds))["x"]) == 5
    assert [record.message for record in caplog.records] == [
        "batch_size=5 is more than the 3 examples: a batch holds some of them twice."
    ]


@pytest.mark.parametrize("fields", [{}, {"num_epochs": 3}, {"num_epochs": 2, "batch_drop_remainder": False}])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_gathered_together_are_those_gathered_one_by_one(fields, shuffle):
    arrays = {"x": np.arange(50 * 3).reshape(50, 3)}
    ds = data.InMemoryPipeline(loader=lambda: arrays, batch_size=8, shuffle=shuffle, seed=0, **fields)
    one_by_one = ds.batches()
    for start in (0, 5):
        iterator = iter(ds)
        iterator.set_state({**iterator.get_state(), "next_batch": start})
        for number, batch in zip(range(start, 14), iterator, strict=False):
            np.testing.assert_array_equal(batch["x"], one_by_one[number]["x"])
