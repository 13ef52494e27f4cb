"""`DataSource`: sources of every kind, threads, and the same batches and states as without them."""

import dataclasses
import functools
import json

import numpy as np
import pytest

from kauldron_core import data
from kauldron_core.errors import ConfigError


def records(count):
    return [{"id": number, "x": np.full(2, number, np.float32)} for number in range(count)]


def source(count=10, **settings):
    return data.py.DataSource(records(count), **{"num_threads": 0, **settings})


def ids(ds):
    return [batch["id"].tolist() for batch in ds]


class ManyAtOnce:
    """A source in the manner of `tfds.data_source`, which counts its calls."""

    def __init__(self):
        self.calls = []

    def __len__(self):
        return 6

    def __getitem__(self, record):
        raise AssertionError("records are to be read many at once")

    def __getitems__(self, numbers):
        self.calls.append(numbers)
        return [{"id": number} for number in numbers]


class Columns:
    """A source in the manner of `datasets.Dataset` in NumPy format: columns that take a number, a slice or a list."""

    def __init__(self, **columns):
        self._columns = columns

    def __len__(self):
        return len(self._columns["id"])

    def __getitem__(self, key):
        if isinstance(key, str):
            return self._columns[key]
        if isinstance(key, list) and not all(type(number) is int for number in key):
            raise TypeError("wrong key type")
        return {name: column[key] for name, column in self._columns.items()}

    def __getitems__(self, keys):
        batch = self[keys]
        return [{name: column[row] for name, column in batch.items()} for row in range(len(keys))]


def test_records_become_batches():
    ds = source(5, batch_size=2, num_epochs=1, batch_drop_remainder=False)
    assert ids(ds) == [[0, 1], [2, 3], [4]]
    assert ds.element_spec["x"].shape == (2, 2)
    assert ds.element_spec["x"].dtype == np.float32


def test_a_function_opens_the_source_on_first_use():
    opened = []

    def open_source():
        opened.append(1)
        return records(4)

    ds = data.py.DataSource(open_source, batch_size=2, num_epochs=1, num_threads=0)
    assert not opened
    assert ids(ds) == ids(ds.for_eval()) == [[0, 1], [2, 3]]
    assert len(opened) == 1


def test_sources_that_read_many_records_at_once_are_asked_so():
    many = ManyAtOnce()
    ds = data.py.DataSource(many, batch_size=3, num_epochs=1, num_threads=0)
    assert ids(ds) == [[0, 1, 2], [3, 4, 5]]
    assert many.calls == [[0, 1, 2], [3, 4, 5]]


def test_a_source_of_columns_gives_the_batches_of_its_rows():
    columns = {"id": np.arange(10), "x": np.eye(10, 3, dtype=np.float32), "text": np.array(list("abcdefghij"))}
    hub = data.py.DataSource(
        functools.partial(Columns, **columns), batch_size=4, num_epochs=2, shuffle=True, seed=1, num_threads=0
    )
    rows = data.py.DataSource([{name: c[i] for name, c in columns.items()} for i in range(10)])
    for ours, theirs in zip(hub, dataclasses.replace(hub, data_source=rows.data_source), strict=True):
        assert ours["text"].tolist() == theirs["text"].tolist() == [columns["text"][i] for i in ours["id"]]
        np.testing.assert_array_equal(ours["x"], columns["x"][ours["id"]])
        np.testing.assert_array_equal(ours["id"], theirs["id"])
    assert isinstance(next(iter(hub))["text"][0], str)


def test_every_epoch_is_a_permutation_of_its_own():
    epochs = np.array(ids(source(20, batch_size=20, shuffle=True, seed=0, num_epochs=3)))
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs.tolist())
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 3
    assert ids(source(20, batch_size=20, shuffle=True, seed=1, num_epochs=1)) != epochs[:1].tolist()


@pytest.mark.parametrize("shuffle", [False, True])
def test_threads_change_nothing(shuffle):
    plain = source(46, batch_size=8, shuffle=shuffle, seed=2, num_epochs=2, batch_drop_remainder="pad")
    threaded = dataclasses.replace(plain, num_threads=3)
    assert ids(threaded) == ids(plain)
    assert len(threaded) == 12


@pytest.mark.parametrize("consumed", [0, 2, 7])
def test_state_gives_the_very_next_batch_with_threads_reading_ahead(consumed):
    """D06: state gives the very next batch with threads reading ahead."""
    ds = source(10, batch_size=4, shuffle=True, seed=5, num_epochs=4, num_threads=2)
    iterator = iter(ds)
    for _ in range(consumed):
        next(iterator)
    resumed = iter(dataclasses.replace(ds, num_threads=0))
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    assert ids(resumed) == ids(iterator) == ids(ds)[consumed:]


def test_one_record_is_shuffled_too():
    assert ids(source(1, batch_size=1, shuffle=True, seed=0, num_epochs=2)) == [[0], [0]]


def test_records_that_do_not_fit_together_are_told_apart_by_leaf():
    ragged = [{"x": np.zeros(2)}, {"x": np.zeros(3)}]
    with pytest.raises(ConfigError, match=r"x has shape \(2,\) in one and \(3,\) in another"):
        next(iter(data.py.DataSource(ragged, batch_size=2, num_threads=0)))
    mixed = [{"x": 0}, {"y": 0}]
    with pytest.raises(ConfigError, match=r"one has \['x'\], another \['y'\]"):
        next(iter(data.py.DataSource(mixed, batch_size=2, num_threads=0)))


def test_what_is_no_source_is_refused():
    with pytest.raises(ConfigError, match="no __len__ and __getitem__"):
        iter(data.py.DataSource(3, batch_size=2))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="empty"):
        iter(data.py.DataSource([], batch_size=2, shuffle=True, seed=0))


@pytest.mark.parametrize("settings", [{"num_workers": -1}, {"num_threads": True}, {"prefetch_batches": 0}])
def test_impossible_prefetching_is_refused_when_made(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        source(**settings)


def test_an_error_of_a_transform_names_it_and_the_record():
    def fail(element):
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing") as caught:
        next(iter(source(batch_size=2, transforms=[fail])))
    assert "of record 0" in caught.value.__notes__[0] and "fail" in caught.value.__notes__[0]
