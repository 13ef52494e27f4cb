"""Mixtures: shares, ends of epochs, exact evaluation, states, and what cannot be mixed."""

import dataclasses
import json

import numpy as np
import pytest

from kauldron_core import data
from kauldron_core.data.mixing import Concatenated, Weighted, period_counts
from kauldron_core.errors import ConfigError


def part(first, count, **settings):
    return data.InMemoryPipeline(loader=lambda: {"id": np.arange(first, first + count)}, **settings)


def mix(datasets=None, **settings):
    datasets = datasets or {"small": part(0, 3), "large": part(100, 10)}
    return data.py.Mix(datasets, **{"batch_size": 4, "num_threads": 0, "num_epochs": 1, **settings})


def ids(ds):
    return [batch["id"].tolist() for batch in ds]


def real_ids(ds):
    return [i for batch in ds for i in batch["id"][batch[data.PADDING_MASK]].tolist()]


@pytest.mark.parametrize(
    ("weights", "counts"),
    [([1, 1], [1, 1]), ([0.7, 0.3], [7, 3]), ([0.1, 0.2, 0.3], [1, 2, 3]), ([2, 4], [1, 2]), ([1e-9, 1], [1, 10_000])],
)
def test_weights_become_the_shortest_period(weights, counts):
    assert period_counts(weights).tolist() == counts


@pytest.mark.parametrize("weights", [[1, 0.5], [3, 1], [0.123, 1.7]])
@pytest.mark.parametrize("ends_with_first", [True, False])
def test_shares_hold_in_every_stretch_and_parts_are_read_in_order(weights, ends_with_first):
    pattern = Weighted([7, 30], weights, ends_with_first=ends_with_first)
    places = pattern.places(np.arange(3000))
    for number, weight in enumerate(weights):
        own = places.position[places.part == number]
        np.testing.assert_array_equal(own, np.arange(len(own)))
        share = np.cumsum(places.part == number) - weight / sum(weights) * np.arange(1, 3001)
        assert np.abs(share).max() <= 1.5
    seen = [np.count_nonzero(places.part[: pattern.length] == number) for number in range(2)]
    after = [np.count_nonzero(places.part[: pattern.length + 1] == number) for number in range(2)]
    if ends_with_first:
        assert seen[0] <= 7 and seen[1] <= 30 and (after[0] > 7 or after[1] > 30)
    else:
        before = [np.count_nonzero(places.part[: pattern.length - 1] == number) for number in range(2)]
        assert seen[0] >= 7 and seen[1] >= 30 and (before[0] < 7 or before[1] < 30)


def test_concatenation_gives_each_part_whole_in_each_epoch():
    places = Concatenated([2, 3]).places(np.arange(10))
    assert places.part.tolist() == [0, 0, 1, 1, 1] * 2
    assert places.position.tolist() == [0, 1, 0, 1, 2, 2, 3, 3, 4, 5]


def test_first_ends_with_the_smaller_and_all_with_the_larger():
    assert ids(mix(batch_drop_remainder=False)) == [[0, 100, 1, 101], [2, 102]]
    everything = [i for batch in ids(mix(stop="all", batch_drop_remainder=False)) for i in batch]
    assert [i for i in everything if i >= 100] == list(range(100, 110))
    assert [i for i in everything if i < 100] == [0, 1, 2] * 3 + [0]


def test_weights_may_be_named_or_listed():
    named = mix(weights={"large": 3, "small": 1}, num_epochs=None)
    listed = mix([part(0, 3), part(100, 10)], weights=[0.25, 0.75], num_epochs=None)
    assert ids(named.take(5)) == ids(listed.take(5))
    assert sum(i >= 100 for batch in ids(named.take(5)) for i in batch) == 15


def test_parts_shuffle_by_themselves_and_the_mixture_on_top():
    parts = {"a": part(0, 50, shuffle=True), "b": part(0, 50, shuffle=True)}
    first, second = (
        [i for batch in ids(mix(parts, seed=1, stop="once", batch_size=50))[n : n + 1] for i in batch] for n in (0, 1)
    )
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second, "parts without a seed must get different ones"
    together = mix({"a": part(0, 50), "b": part(100, 50)}, seed=1, stop="once", shuffle=True, batch_size=100)
    (batch,) = ids(together)
    assert sorted(batch) == [*range(50), *range(100, 150)]
    assert 10 < sum(i < 50 for i in batch[:50]) < 40


def test_for_eval_gives_every_example_of_every_part_once():
    """E02: for eval gives every example of every part once."""
    ds = mix({"a": part(0, 3, shuffle=True), "b": part(100, 10, shuffle=True)}, weights={"a": 5, "b": 1}, seed=3)
    assert real_ids(ds.for_eval()) == [0, 1, 2, *range(100, 110)]
    assert real_ids(mix([part(0, 3), part(9, 2)], weights=[1, 2]).for_eval()) == [0, 1, 2, 9, 10]


@pytest.mark.parametrize("stop", ["first", "all", "once"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_global_batches_are_the_same_on_any_number_of_hosts(stop, shuffle):
    ds = mix(stop=stop, shuffle=shuffle, seed=0, num_epochs=3, batch_drop_remainder="pad")
    whole = [batch["id"][batch[data.PADDING_MASK]].tolist() for batch in ds]
    for count in (2, 4):
        hosts = [list(dataclasses.replace(ds, shard_index=host, shard_count=count)) for host in range(count)]
        together = [
            [i for batch in parts for i in batch["id"][batch[data.PADDING_MASK]].tolist()]
            for parts in zip(*hosts, strict=True)
        ]
        assert list(map(sorted, together)) == list(map(sorted, whole))


@pytest.mark.parametrize("consumed", [1, 6])
def test_state_gives_the_very_next_batch(consumed):
    """D06: state gives the very next batch."""
    ds = mix(shuffle=True, seed=0, num_epochs=9, weights=[1, 2], num_threads=2)
    iterator = iter(ds)
    for _ in range(consumed):
        next(iterator)
    resumed = iter(ds)
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    assert ids(resumed) == ids(ds)[consumed:] != []


def test_state_of_another_mixture_is_refused():
    iterator = iter(mix())
    for other in (mix(weights=[1, 2]), mix({"small": part(0, 4), "large": part(100, 10)})):
        with pytest.raises(ConfigError, match=r"saved with"):
            iter(other).set_state(iterator.get_state())


def test_transforms_of_the_mixture_follow_those_of_the_parts():
    parts = {
        "a": part(0, 4, transforms=[data.AddConstants({"kind": 0})]),
        "b": part(100, 4, transforms=[data.AddConstants({"kind": 1})]),
    }
    ds = mix(parts, transforms=[data.OneHot(key="kind", num_classes=2), data.Filter(lambda e: e["id"] % 2 == 0)])
    assert ids(ds) == [[0, 100, 2, 102]]
    assert next(iter(ds))["kind"].tolist() == [[1, 0], [0, 1]] * 2


def test_mixtures_nest():
    inner = data.py.Mix([part(0, 2), part(10, 2)], stop="once")
    assert ids(mix({"inner": inner, "c": part(100, 4)}, stop="once")) == [[0, 1, 10, 11], [100, 101, 102, 103]]


def _other(**columns):
    return data.InMemoryPipeline(loader=lambda: columns)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (_other(id=np.zeros(3, np.float32)), r"id is int64\[\] in 'a' and float32\[\] in 'b'"),
        (_other(id=np.zeros((3, 2), np.int64)), r"int64\[\] in 'a' and int64\[2\] in 'b'"),
        (_other(id=np.arange(3), extra=np.arange(3)), "extra is missing in 'a'"),
        (_other(id=np.arange(0)), "'b' is empty"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused_before_the_first_batch(other, message):
    with pytest.raises(ConfigError, match=message):
        iter(mix({"a": part(0, 3), "b": other}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stop": "frist"}, "Did you mean 'first'"),
        ({"weights": [1]}, "1 weights for 2"),
        ({"weights": [1, 0]}, "positive"),
        ({"weights": {"small": 1, "big": 2}}, "weights are for"),
        ({"datasets": {"a": part(0, 3).take(1)}}, "max_batches"),
        ({"datasets": {"a": 3}}, "no pipeline"),
    ],
)
def test_impossible_mixtures_are_refused_when_made(settings, message):
    with pytest.raises(ConfigError, match=message):
        mix(**settings)


def test_a_mixture_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="no datasets"):
        data.py.Mix({}, batch_size=1)
