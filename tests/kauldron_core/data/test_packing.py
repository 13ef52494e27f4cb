"""Packing: every token once an epoch, on any number of hosts, whatever the store, and told apart by segment."""

import dataclasses
import json

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kauldron_core import data
from kauldron_core.data.packing import first_fit
from kauldron_core.errors import ConfigError

LENGTH = 8


def tokens(number, size):
    """Returns tokens that tell their record and their place in it."""
    return {"tokens": 100 * number + np.arange(size, dtype=np.int32) + 1, "id": number}


def records(count=23, seed=0):
    sizes = np.random.default_rng(seed).integers(1, LENGTH + 1, count)
    return [tokens(number, int(size)) for number, size in enumerate(sizes)]


def packed(source=None, **settings):
    defaults = {"transforms": [data.Pack({"tokens": LENGTH})], "batch_size": 4, "num_epochs": 1, "num_threads": 0}
    return data.py.DataSource(source or records(), **{**defaults, "batch_drop_remainder": "pad", **settings})


def all_tokens(source):
    return sorted(token for record in source for token in record["tokens"].tolist())


def real_tokens(batches):
    rows = np.concatenate([batch["tokens"][batch[data.PADDING_MASK]] for batch in batches])
    return sorted(rows[rows > 0].tolist())


def test_rows_hold_whole_examples_with_segments_and_positions():
    source = [tokens(0, 3), tokens(1, 6), tokens(2, 4), tokens(3, 2)]
    (batch,) = packed(source, batch_drop_remainder=False)
    assert batch["tokens"].tolist() == [
        [1, 2, 3, 201, 202, 203, 204, 0],
        [101, 102, 103, 104, 105, 106, 301, 302],
    ]
    assert batch["tokens_segment_ids"].tolist() == [[1, 1, 1, 2, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1, 2, 2]]
    assert batch["tokens_positions"].tolist() == [[0, 1, 2, 0, 1, 2, 3, 0], [0, 1, 2, 3, 4, 5, 0, 1]]
    assert {key: value.dtype for key, value in batch.items()} == dict.fromkeys(batch, np.int32)
    assert "id" not in batch


def test_several_entries_fill_their_rows_together():
    source = [{"x": np.ones((size, 2)) * size, "y": np.arange(9 - size)} for size in (2, 4, 3)]
    ds = packed(source, transforms=[data.Pack({"x": 8, "y": 11}, value=-1)], batch_drop_remainder=False)
    (batch,) = ds
    assert batch["x_segment_ids"].tolist() == [[1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 2, 2, 2, 0]]
    assert batch["y_segment_ids"].tolist() == [[1] * 7 + [0] * 4, [1] * 5 + [2] * 6]
    assert batch["x"][1, :, 0].tolist() == [4, 4, 4, 4, 3, 3, 3, -1]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("shard_count", [1, 2, 4])
def test_every_token_comes_once_an_epoch_on_any_number_of_hosts(shard_count, shuffle):
    ds = packed(shuffle=shuffle, seed=3, num_epochs=2)
    hosts = [list(dataclasses.replace(ds, shard_index=h, shard_count=shard_count)) for h in range(shard_count)]
    assert {len(host) for host in hosts} == {len(ds)}
    assert real_tokens([batch for host in hosts for batch in host]) == sorted(2 * all_tokens(records()))


def test_filters_and_steps_before_decide_what_is_packed_and_steps_after_see_rows():
    kept = data.Filter(lambda element: element["id"] % 2 == 0)
    shapes = []

    def observe(row):
        shapes.append(row["tokens"].shape)
        return row

    steps = [kept, data.Truncate(key="tokens", length=5), data.Pack({"tokens": LENGTH}), observe]
    ds = packed(transforms=steps)
    expected = [{"tokens": record["tokens"][:5]} for record in records()[::2]]
    for variant in (ds, ds.cache(), ds.cache()):
        assert real_tokens(variant) == all_tokens(expected)
    assert set(shapes) == {(LENGTH,)}


def test_packed_rows_resume():
    """D06: packed rows resume."""
    ds = packed(shuffle=True, seed=1, num_epochs=3)
    iterator = iter(ds)
    for _ in range(5):
        next(iterator)
    resumed = iter(ds.cache())
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    rest = [batch["tokens"].tolist() for batch in iterator]
    assert len(rest) > 2 and rest == [batch["tokens"].tolist() for batch in resumed]


def test_a_table_shuffled_by_blocks_is_packed_whole(tmp_path):
    rows = records(60)
    table = pa.table({"tokens": [row["tokens"] for row in rows], "id": [row["id"] for row in rows]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    ds = data.py.Parquet(
        tmp_path,
        transforms=[data.Pack({"tokens": LENGTH})],
        batch_size=5,
        num_epochs=1,
        shuffle=True,
        seed=0,
        batch_drop_remainder="pad",
    )
    assert real_tokens(ds) == all_tokens(rows)


def test_what_cannot_be_packed_is_refused():
    jitter = data.RandomFlipLeftRight(key="tokens")
    pack = data.Pack({"tokens": LENGTH})
    for steps in ([jitter, pack], [pack, pack], [pack, data.Filter(bool)]):
        with pytest.raises(ConfigError, match="Put it first"):
            packed(transforms=steps)
    with pytest.raises(ConfigError, match="not batch_transforms"):
        packed(batch_transforms=[pack])
    with pytest.raises(ConfigError, match="Pack in the source"):
        data.FromIterator(records, transforms=[pack], batch_size=4)
    with pytest.raises(ConfigError, match="positive lengths"):
        data.Pack({"tokens": 0})
    for source, message in (([tokens(0, 9)], "length 9, longer than 8"), ([{"tokens": 1}], "scalar")):
        with pytest.raises(ValueError, match=message) as caught:
            iter(packed(source))
        assert "of record 0" in caught.value.__notes__[0]


@hypothesis.given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5)), max_size=200))
@hypothesis.settings(max_examples=60, deadline=None)
def test_first_fit_places_each_example_once_within_the_room(sizes):
    lengths = [{"x": x, "y": y} for x, y in sizes]
    rows = first_fit(lengths, {"x": 7, "y": 5})
    assert sorted(place for row in rows for place in row.tolist()) == list(range(len(sizes)))
    for row in rows:
        assert sum(lengths[place]["x"] for place in row) <= 7 and sum(lengths[place]["y"] for place in row) <= 5
    firsts = [int(row[0]) for row in rows]
    assert firsts == sorted(firsts)
