"""Caching: each record is read and transformed once, and nothing else changes."""

import dataclasses

import numpy as np
import pytest

from kauldron_core import data


class Counting:
    """A source that counts how often each record is read."""

    def __init__(self, count):
        self.reads = [0] * count

    def __len__(self):
        return len(self.reads)

    def __getitem__(self, number):
        self.reads[number] += 1
        return {"id": number}


class Jitter(data.RandomMapTransform):
    def random_map(self, element, rng):
        element["noise"] = rng.random()  # Changes the dictionary in place, which a cache must survive.
        return element


def batches(ds):
    return [{key: value.tolist() for key, value in batch.items()} for batch in ds]


@pytest.mark.parametrize("shuffle", [False, True])
def test_records_are_read_and_transformed_once_and_random_steps_stay_random(shuffle):
    source = Counting(10)
    doubled = []

    def double(element):
        doubled.append(element["id"])
        return {"id": element["id"], "twice": 2 * element["id"]}

    ds = data.py.DataSource(
        source, batch_size=4, num_epochs=3, shuffle=shuffle, seed=0, transforms=[double, Jitter()], num_threads=0
    )
    expected = batches(ds)
    source.reads = [0] * 10
    doubled.clear()
    cached = ds.cache()
    assert batches(cached) == expected
    assert source.reads == [1] * 10
    assert sorted(doubled) == list(range(10))
    noise = [value for batch in batches(cached) for value in batch["noise"]]
    assert len(set(noise)) == len(noise)


def test_all_variants_share_what_is_kept():
    source = Counting(8)
    ds = data.py.DataSource(source, batch_size=4, num_epochs=1, num_threads=0).cache()
    for variant in (ds, ds.for_eval(), dataclasses.replace(ds, shuffle=True, seed=1)):
        list(variant)
    assert source.reads == [1] * 8


def test_states_pass_between_cached_and_uncached():
    ds = data.py.DataSource(Counting(10), batch_size=4, num_epochs=3, shuffle=True, seed=0)
    iterator = iter(ds.cache())
    next(iterator)
    resumed = iter(ds)
    resumed.set_state(iterator.get_state())
    assert batches(resumed) == batches(iterator) == batches(ds)[1:]


def test_filters_and_mixtures_are_cached_too():
    source = Counting(9)
    even = data.py.DataSource(source, transforms=[data.Filter(lambda e: e["id"] % 2 == 0)])
    ones = data.InMemoryPipeline(loader=lambda: {"id": np.ones(3, int)}, transforms=[lambda e: {"id": e["id"] * 100}])
    ds = data.py.Mix({"even": even, "ones": ones}, batch_size=4, num_epochs=2, stop="once", num_threads=0)
    expected = batches(ds)
    source.reads = [0] * 9
    assert batches(ds.cache()) == expected
    # Once for the filter, and once for those that it keeps.
    assert source.reads == [2, 1, 2, 1, 2, 1, 2, 1, 2]
