"""Files: what records look like, block-wise shuffling, filters, and files that are not there."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kauldron_core import data
from kauldron_core.data.order import BlockShuffled
from kauldron_core.data.py.blocks import Block, BlockRecords
from kauldron_core.errors import ConfigError

COUNT = 50


def table(count=COUNT, start=0):
    ids = np.arange(start, start + count)
    return pa.table(
        {
            "id": ids,
            "score": ids.astype(np.float32) / 2,
            "image": [bytes([i % 256, 0]) for i in ids],
            "name": pa.array([f"n{i % 3}" for i in ids]).dictionary_encode(),
            "vector": pa.array([[i, i + 1] for i in ids], pa.list_(pa.float32())),
            "matrix": pa.array([[[i, 0], [0, i]] for i in ids], pa.list_(pa.list_(pa.int32(), 2), 2)),
            "words": [[f"w{j}" for j in range(i % 3)] for i in ids],
            "box": [{"x": int(i), "corner": {"y": float(i)}} for i in ids],
            "is_even": ids % 2 == 0,
        }
    )


def write_parquet(path, rows):
    pq.write_table(rows, path, row_group_size=7)


def write_file(path, rows):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=7)


def write_stream(path, rows):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=7)


FORMATS = {
    "parquet": (data.py.Parquet, write_parquet),
    "arrow file": (data.py.Arrow, write_file),
    "arrow stream": (data.py.Arrow, write_stream),
}


@pytest.fixture(params=FORMATS)
def stored(request, tmp_path):
    """Returns a function that makes a pipeline over the table above."""
    pipeline, write = FORMATS[request.param]
    for part, start in (("b", 20), ("a", 0)):
        write(tmp_path / f"{part}{pipeline.suffix}", table(20 if part == "a" else 30, start))
    return lambda **settings: pipeline(tmp_path, **{"batch_size": 10, "num_epochs": 1, "num_threads": 0, **settings})


def ids(ds):
    return [batch["id"].tolist() for batch in ds]


FIXED = data.Elements(drop=["words", "name", "image"])


def test_records_of_tables_are_dictionaries_of_arrays_text_and_bytes(stored):
    (batch, *_) = stored(batch_size=3, transforms=[data.Elements(drop=["words"])])
    assert batch["id"].tolist() == [0, 1, 2]
    assert batch["score"].dtype == np.float32
    assert batch["image"].tolist() == [b"\x00\x00", b"\x01\x00", b"\x02\x00"]
    assert batch["name"].tolist() == ["n0", "n1", "n2"]
    assert batch["vector"].dtype == np.float32 and batch["vector"].tolist() == [[0, 1], [1, 2], [2, 3]]
    assert batch["matrix"].shape == (3, 2, 2)
    assert batch["box"]["corner"]["y"].tolist() == [0.0, 1.0, 2.0]
    assert batch["is_even"].tolist() == [True, False, True]


def test_transforms_see_single_records(stored):
    def describe(record):
        assert isinstance(record["image"], bytes) and isinstance(record["name"], str)
        return {"id": record["id"], "words": len(record["words"]), "y": record["box"]["corner"]["y"]}

    (batch, *_) = stored(transforms=[describe])
    assert batch["words"].tolist() == [i % 3 for i in range(10)]
    assert batch["y"].tolist() == list(range(10))


def test_files_of_a_folder_come_in_the_order_of_their_names(stored):
    ds = stored(columns=["id"])
    assert ids(ds) == np.arange(50).reshape(5, 10).tolist()
    assert set(next(iter(ds))) == {"id"}
    assert len(ds) == 5


def test_shuffled_epochs_are_permutations_on_any_number_of_hosts(stored):
    ds = stored(transforms=[FIXED], shuffle=True, seed=0, num_epochs=2, shuffle_window_mib=1)
    whole = ids(ds)
    first, second = np.concatenate(whole[:5]), np.concatenate(whole[5:])
    assert sorted(first) == sorted(second) == list(range(50))
    assert first.tolist() != second.tolist()
    hosts = [ids(dataclasses.replace(ds, shard_index=host, shard_count=2)) for host in range(2)]
    assert [sorted(a + b) for a, b in zip(*hosts, strict=True)] == [sorted(batch) for batch in whole]


def test_state_gives_the_very_next_batch_with_threads(stored):
    """D06: state gives the very next batch with threads."""
    ds = stored(columns=["id"], shuffle=True, seed=0, num_epochs=3, num_threads=2)
    iterator = iter(ds)
    for _ in range(7):
        next(iterator)
    resumed = iter(ds)
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    assert ids(resumed) == ids(ds)[7:]


def test_filters_apply_to_files(stored):
    ds = stored(transforms=[data.Filter(lambda r: r["is_even"]), FIXED], shuffle=True, seed=0, batch_size=5)
    assert sorted(np.concatenate(ids(ds))) == list(range(0, 50, 2))


def test_unknown_columns_and_missing_files_are_named_on_first_use(stored, tmp_path):
    with pytest.raises(ConfigError, match=r"unknown column 'scores'\. Did you mean 'score'"):
        iter(stored(columns=["scores"]))
    with pytest.raises(ConfigError, match="unknown column 'i'"):
        iter(stored(columns=["id"], fill_null={"i": 0}))
    missing = dataclasses.replace(stored(), path=tmp_path / "none.parquet")
    with pytest.raises(ConfigError, match="no file"):
        iter(missing)
    with pytest.raises(ConfigError, match="no file"):
        iter(dataclasses.replace(stored(), path=[tmp_path / "*.nothing"]))


def test_ragged_lists_do_not_fit_into_a_batch(stored):
    with pytest.raises(ConfigError, match="do not fit into one batch"):
        next(iter(stored(columns=["id", "words"])))


def test_missing_values_are_an_error_or_filled(tmp_path):
    path = tmp_path / "nulls.parquet"
    pq.write_table(pa.table({"id": [1, None, 3]}), path)
    with pytest.raises(ConfigError, match=r"column id holds 1 missing values.*fill_null"):
        next(iter(data.py.Parquet(path, batch_size=3)))
    (batch,) = data.py.Parquet(path, batch_size=3, num_epochs=1, fill_null={"id": -1}, num_threads=0)
    assert batch["id"].tolist() == [1, -1, 3] and batch["id"].dtype == np.int64


def test_an_empty_file_is_an_empty_set(tmp_path):
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "empty.parquet")
    with pytest.raises(ConfigError, match="empty"):
        iter(data.py.Parquet(tmp_path, batch_size=3, shuffle=True, seed=0))


@pytest.mark.parametrize("window", [1, 100, 10_000])
def test_block_shuffle_is_a_permutation_that_stays_within_its_windows(window):
    sizes = np.array([5, 1, 7, 3, 4])
    order = BlockShuffled(sizes, sizes * 10, window=window, seed=3)
    for epoch in (0, 4):
        records = order.records(epoch, np.arange(20))
        assert sorted(records) == list(range(20))
        assert records[3:17:2].tolist() == order.records(epoch, np.arange(3, 17, 2)).tolist()
        blocks = np.searchsorted(np.cumsum(sizes), records, side="right")
        if window == 1:
            assert np.count_nonzero(np.diff(blocks)) == 4
    assert order.records(0, np.arange(20)).tolist() != order.records(1, np.arange(20)).tolist()


def test_blocks_are_read_once_an_epoch_and_few_are_kept():
    loads = []

    def block(number):
        def load():
            loads.append(number)
            return pa.table({"id": np.arange(number * 10, number * 10 + 10)})

        return Block(10, 80, load)

    records = BlockRecords([block(number) for number in range(12)], window=240)
    order = records.shuffled(0, None)
    for start in range(0, 120, 8):
        numbers = order.records(0, np.arange(start, start + 8))
        assert records.read_batch(numbers, [])["id"].tolist() == numbers.tolist()
        assert len(records._loaded) <= 6
    assert sorted(loads) == list(range(12))


def write_lines(path, first, count):
    lines = [{"id": i, "text": f"t{i}ü", "vector": [i, 0.5], "box": {"x": [[i]]}} for i in range(first, first + count)]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")


def test_json_lines(tmp_path):
    write_lines(tmp_path / "1.jsonl", 0, 5)
    write_lines(tmp_path / "2.jsonl", 5, 7)
    ds = data.py.JsonLines(tmp_path, batch_size=4, num_epochs=1, num_threads=0)
    first, *_ = ds
    assert ids(ds) == np.arange(12).reshape(3, 4).tolist()
    assert first["text"].tolist() == [f"t{i}ü" for i in range(4)]
    assert first["vector"].tolist() == [[i, 0.5] for i in range(4)]
    assert first["box"]["x"].shape == (4, 1, 1)
    shuffled = ids(dataclasses.replace(ds, shuffle=True, seed=0, num_threads=2))
    assert sorted(np.concatenate(shuffled)) == list(range(12)) != np.concatenate(shuffled).tolist()


def test_a_broken_line_is_named(tmp_path):
    (tmp_path / "1.jsonl").write_text('{"id": 1}\n{"id": \n{"id": 3}\n')
    with pytest.raises(ConfigError, match=r"1\.jsonl, record 1: cannot be read.*JSONDecodeError"):
        next(iter(data.py.JsonLines(tmp_path / "1.jsonl", batch_size=2, num_threads=0)))


def write_records(path, first, count):
    from array_record.python import array_record_module

    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
    for number in range(first, first + count):
        writer.write(bytes([number]))
    writer.close()


def test_array_record(tmp_path):
    write_records(tmp_path / "a.array_record", 0, 6)
    ds = data.py.ArrayRecord(
        str(tmp_path / "*.array_record"), batch_size=3, num_epochs=1, transforms=[lambda record: {"id": record[0]}]
    )
    assert ids(ds) == [[0, 1, 2], [3, 4, 5]]


READERS = {
    "parquet": (data.py.Parquet, lambda path, first, count: write_parquet(path, table(count, first))),
    "arrow file": (data.py.Arrow, lambda path, first, count: write_file(path, table(count, first))),
    "arrow stream": (data.py.Arrow, lambda path, first, count: write_stream(path, table(count, first))),
    "json lines": (data.py.JsonLines, write_lines),
    "array record": (data.py.ArrayRecord, write_records),
}


@pytest.fixture(params=READERS)
def numbered(request, tmp_path):
    """Returns the class of a reader and its four files, of 10 records each."""
    reader, write = READERS[request.param]
    files = [tmp_path / f"part-{number:05d}-of-00004{reader.suffix}" for number in range(4)]
    for number, file in enumerate(files):
        write(file, 10 * number, 10)
    return reader, files


def count(reader, path, **settings):
    return len(reader(path, batch_size=10, num_epochs=1, num_threads=0, **settings))


def test_files_missing_of_a_numbered_set_are_all_named(numbered):
    """F13: two files of `part-00000-of-00004` are missing; folder, pattern and list read half the data in silence."""
    reader, files = numbered
    files[1].unlink(), files[3].unlink()
    all_named = r"2 files are missing: part-00001-of-00004\..*, part-00003-of-00004\..*allow_partial"
    for path in (files[0].parent, files[0].parent / f"part-*{reader.suffix}", [files[0], files[2]]):
        with pytest.raises(ConfigError, match=all_named):
            count(reader, path)
        assert count(reader, path, allow_partial=True) == 2
    with pytest.raises(ConfigError, match=r"no file '.*part-00001.*', '.*part-00003"):
        count(reader, files)


def test_a_part_of_a_numbered_set_may_be_meant(numbered):
    """F13: a list of some files, a pattern that leaves some out and a file alone are no mistake."""
    reader, files = numbered
    assert count(reader, files[:3]) == 3
    files[3].unlink()
    assert count(reader, files[0].parent / f"part-0000[0-2]-of-00004{reader.suffix}") == 3
    assert count(reader, files[2]) == 1


def test_sets_may_count_from_one(numbered):
    """F13: `-00001-of-00004` to `-00004-of-00004` is whole, and what is missing of it is named so."""
    reader, files = numbered
    files[0].rename(files[0].with_name(f"part-00004-of-00004{reader.suffix}"))
    assert count(reader, files[0].with_name("part-*")) == 4
    files[2].unlink()
    with pytest.raises(ConfigError, match=r"1 files are missing: part-00002-of-00004"):
        count(reader, files[0].parent)


def test_files_of_two_sets_are_not_mixed(numbered):
    """F13: `-of-00004` and `-of-00008` in one folder are old data and new."""
    reader, files = numbered
    files[0].rename(files[0].with_name(f"part-00000-of-00008{reader.suffix}"))
    with pytest.raises(ConfigError, match=r"-of-00004.* and .*-of-00008.* are two sets"):
        count(reader, files[0].parent)


def test_cut_and_empty_files_are_named(numbered):
    """F13: a file that was cut, or of no bytes, was an error of a library without the file's name, or was read."""
    reader, files = numbered
    content = files[1].read_bytes()
    ends = [len(content) // 2 + 5, len(content) - 8]
    for end in ends:
        files[1].write_bytes(content[:end])
        with pytest.raises(ConfigError, match=r"part-00001-of-00004.*: cannot be read, it may be cut"):
            count(reader, files[1].parent)
    files[1].write_bytes(b"")
    with pytest.raises(ConfigError, match=r"1 of 4 files are empty \(0 bytes\): part-00001-of-00004"):
        count(reader, files[1].parent)
