"""No record lost or doubled: ids are counted over the whole product of sizes, batches, hosts, epochs and modes."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest

from kauldron_core import data
from kauldron_core.errors import ConfigError

SIZES = range(61)
# 12 goes with every size, since every number of hosts divides it; the others take turns.
BATCH_SIZES = (1, 4, 7, 24)
SHARD_COUNTS = (1, 2, 3, 4)


def real_ids(batch):
    ids = batch["id"]
    return ids[batch[data.PADDING_MASK]].tolist() if data.PADDING_MASK in batch else ids.tolist()


def hosts_batches(ds, shard_count):
    """Returns the batches of each host."""
    return [list(dataclasses.replace(ds, shard_index=host, shard_count=shard_count)) for host in range(shard_count)]


def check_epochs(ds, size, num_epochs, mode):
    """Checks one host's batches, and returns the ids in each."""
    batches = list(ds)
    assert len(ds) == len(batches)
    ids = [real_ids(batch) for batch in batches]
    seen = list(itertools.chain(*ids))
    if mode is True:
        assert len(seen) == size * num_epochs // ds.batch_size * ds.batch_size
    else:
        assert collections.Counter(seen) == dict.fromkeys(range(size), num_epochs)
    for epoch in range(len(seen) // size):
        assert sorted(seen[epoch * size : (epoch + 1) * size]) == list(range(size))
    if mode is not False:
        assert all(len(batch["id"]) == ds.batch_size for batch in batches)
    return ids


def check_shards(ds, shard_count, ids):
    """Checks that the hosts' batches put together are those of one host."""
    hosts = hosts_batches(ds, shard_count)
    assert {len(host) for host in hosts} == {len(ids)}
    for number, expected in enumerate(ids):
        parts = [host[number] for host in hosts]
        assert all(len(part["id"]) == ds.batch_size // shard_count for part in parts)
        assert sorted(itertools.chain(*map(real_ids, parts))) == sorted(expected)


def check_refused(ds, message):
    with pytest.raises(ConfigError, match=message):
        iter(ds)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("mode", [True, False, "pad"])
def test_every_id_comes_once_an_epoch_on_any_number_of_hosts(mode, shuffle):
    """D10: every id comes once an epoch on any number of hosts."""
    product = itertools.product(SIZES, (1, 2, 3), (False, True))
    for size, num_epochs, is_in_turn in product:
        batch_size = BATCH_SIZES[(size + num_epochs) % 4] if is_in_turn else 12
        ds = data.InMemoryPipeline(
            loader=lambda size=size: {"id": np.arange(size)},
            batch_size=batch_size,
            num_epochs=num_epochs,
            shuffle=shuffle,
            seed=size,
            batch_drop_remainder=mode,
        )
        if not size:
            check_refused(ds, "empty")
            continue
        if mode is True and size * num_epochs < batch_size:
            check_refused(ds, "do not fill one batch")
            continue
        ids = check_epochs(ds, size, num_epochs, mode)
        for shard_count in SHARD_COUNTS[1:]:
            sharded = dataclasses.replace(ds, shard_index=0, shard_count=shard_count)
            if batch_size % shard_count:
                check_refused(sharded, "divisible")
            elif mode != "pad" and size < shard_count:
                check_refused(sharded, f"{shard_count} shards of {size} examples")
            elif mode is False:
                check_refused(sharded, "'pad'")
            else:
                check_shards(ds, shard_count, ids)


@pytest.mark.parametrize("mode", [True, "pad"])
def test_sources_keep_the_same_promise(mode):
    """D10: sources keep the same promise."""
    for size, shuffle in itertools.product(range(1, 20), (False, True)):
        ds = data.py.DataSource(
            [{"id": number} for number in range(size)],
            batch_size=4,
            num_epochs=4,
            shuffle=shuffle,
            seed=3,
            batch_drop_remainder=mode,
            num_threads=0,
        )
        ids = check_epochs(ds, size, 4, mode)
        for shard_count in (2, 4):
            if mode == "pad" or size >= shard_count:
                check_shards(ds, shard_count, ids)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("case", [*range(6), *(pytest.param(case, marks=pytest.mark.soak) for case in range(6, 12))])
def test_no_record_lost_with_two_workers(case):
    random = np.random.default_rng(case)
    size, mode, shards = int(random.integers(4, 61)), [True, "pad"][case % 2], 2 if case in (3, 8) else 1
    num_epochs = int(random.integers(1, 4))
    ds = data.py.DataSource(
        [{"id": number} for number in range(size)],
        batch_size=4,
        num_epochs=num_epochs,
        shuffle=bool(case % 3),
        seed=case,
        batch_drop_remainder=mode,
        num_workers=2,
    )
    ids = check_epochs(ds, size, num_epochs, mode)
    if shards > 1:
        check_shards(ds, shards, ids)
