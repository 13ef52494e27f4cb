"""`FromIterator`: batches, hosts and states of what can only be read in order."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from kauldron_core import data
from kauldron_core.errors import ConfigError


def generate(count):
    def source():
        for number in range(count):
            yield {"id": number}

    return source


class Counter:
    """An iterator that says how it is resumed; it never repeats itself, so replaying would show."""

    opened = 0

    def __init__(self, stop):
        type(self).opened += 1
        self._next, self._stop = 0, stop

    def __iter__(self):
        return self

    def __next__(self):
        if self._next == self._stop:
            raise StopIteration
        self._next += 1
        return {"id": self._next - 1}

    def get_state(self):
        return {"next": self._next}

    def set_state(self, state):
        self._next = state["next"]


def pipeline(count=10, source=None, **settings):
    return data.FromIterator(source or generate(count), **{"batch_size": 4, "num_epochs": 1, **settings})


def ids(ds):
    return [batch["id"].tolist() for batch in ds]


@pytest.mark.parametrize("num_epochs", [1, 2])
@pytest.mark.parametrize("mode", [True, False, "pad"])
@pytest.mark.parametrize("count", [4, 10])
def test_batches_are_those_of_the_same_data_in_memory(count, mode, num_epochs):
    settings = {"num_epochs": num_epochs, "batch_drop_remainder": mode}
    same = data.InMemoryPipeline(loader=lambda: {"id": np.arange(count)}, batch_size=4, **settings)
    for ours, theirs in zip(pipeline(count, **settings), same, strict=True):
        assert ours.keys() == theirs.keys()
        for key in ours:
            np.testing.assert_array_equal(ours[key], theirs[key])
    assert pipeline(count, **settings).element_spec == same.element_spec


@pytest.mark.parametrize("shard_count", [2, 4])
def test_hosts_share_every_batch(shard_count):
    whole = pipeline(10, batch_drop_remainder="pad")
    hosts = [list(dataclasses.replace(whole, shard_index=h, shard_count=shard_count)) for h in range(shard_count)]
    seen = [[b["id"][b[data.PADDING_MASK]].tolist() for b in parts] for parts in zip(*hosts, strict=True)]
    assert [sorted(itertools.chain(*parts)) for parts in seen] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def resumed_after(ds, consumed):
    iterator = iter(ds)
    for _ in range(consumed):
        next(iterator)
    resumed = iter(ds)
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    return resumed


@pytest.mark.parametrize("consumed", [0, 1, 3, 5, 8])
def test_a_replayable_source_resumes_in_any_epoch(consumed):
    """D06: a replayable source resumes in any epoch."""
    ds = pipeline(10, num_epochs=3, is_replayable=True, batch_drop_remainder="pad")
    assert ids(resumed_after(ds, consumed)) == ids(ds)[consumed:]


@pytest.mark.parametrize("consumed", [1, 3, 5])
def test_an_iterator_with_a_state_resumes_by_it(consumed):
    """D06: an iterator with a state resumes by it."""
    ds = pipeline(source=lambda: Counter(10), num_epochs=3, batch_drop_remainder=False)
    resumed = resumed_after(ds, consumed)
    Counter.opened = 0
    assert ids(resumed) == ids(ds)[consumed:]


def test_an_iterator_that_cannot_be_brought_back_is_refused_with_the_two_ways_out():
    ds = pipeline(10)
    with pytest.raises(ConfigError, match=r"get_state and set_state, or set is_replayable=True"):
        resumed_after(ds, 1)
    assert ids(resumed_after(ds, 0)) == ids(ds)


def test_a_state_from_the_very_end_needs_no_source():
    """R04: a state from the very end needs no source."""
    ds = pipeline(8)
    iterator = iter(ds)
    assert len(list(iterator)) == 2
    resumed = iter(ds)
    resumed.set_state(iterator.get_state())
    assert ids(resumed) == []


def test_state_of_another_batch_size_is_refused():
    with pytest.raises(ConfigError, match="batch_size=4 and the pipeline has batch_size=5"):
        iter(pipeline(batch_size=5)).set_state(iter(pipeline()).get_state())


def test_transforms_filters_and_take():
    ds = pipeline(
        20,
        transforms=[data.Filter(lambda e: e["id"] % 3 == 0), lambda e: {"id": e["id"] * 2}],
        batch_drop_remainder=False,
    )
    assert ids(ds) == [[0, 6, 12, 18], [24, 30, 36]]
    assert ids(ds.take(1)) == [[0, 6, 12, 18]]
    assert ids(ds.map(lambda batch: {"id": batch["id"] + 1}))[0] == [1, 7, 13, 19]


def test_for_eval_gives_all_once():
    """E18: for eval gives all once."""
    seen = [batch["id"][batch[data.PADDING_MASK]].tolist() for batch in pipeline(10, num_epochs=None).for_eval()]
    assert list(itertools.chain(*seen)) == list(range(10))


@pytest.mark.parametrize(
    ("ds", "message"),
    [
        (pipeline(0), "the source gave nothing in epoch 0"),
        (pipeline(3), "3 examples do not fill one batch of 4"),
        (pipeline(3, transforms=[data.Filter(lambda e: False)], num_epochs=None), "filters keep nothing"),
    ],
)
def test_sources_without_a_batch_are_errors_at_the_first(ds, message):
    with pytest.raises(ConfigError, match=message):
        next(iter(ds))


def test_a_source_that_returns_its_used_up_iterator_is_an_error_not_a_hang():
    once = iter([{"id": number} for number in range(6)])
    iterator = iter(pipeline(source=lambda: once, num_epochs=None))
    next(iterator)
    with pytest.raises(ConfigError, match="new iterable at each call"):
        next(iterator)


def test_shuffling_and_length_are_refused():
    with pytest.raises(ConfigError, match="cannot shuffle"):
        pipeline(shuffle=True)
    with pytest.raises(TypeError, match="no length"):
        len(pipeline())


def test_closing_closes_the_generator():
    closed = []

    def source():
        try:
            while True:
                yield {"id": 0}
        finally:
            closed.append(True)

    iterator = iter(pipeline(source=source))
    next(iterator)
    iterator.close()
    assert closed and list(iterator) == []
    assert iterator.get_state()["is_done"] is False
