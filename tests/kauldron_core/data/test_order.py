"""Orders are permutations, differ by epoch and seed, and need no epoch before."""

import numpy as np
import pytest

from kauldron_core.data.order import CipherShuffled, Shuffled, mixed_seed, shuffled
from kauldron_core.data.schedule import BatchSchedule, split_epochs

ORDERS = [Shuffled, CipherShuffled]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_every_epoch_is_a_permutation(order, size):
    for epoch in (0, 3):
        assert sorted(order(size, 5).records(epoch, np.arange(size)).tolist()) == list(range(size))


@pytest.mark.parametrize("order", ORDERS)
def test_order_depends_on_epoch_and_seed_only(order):
    def records(seed, epoch):
        return order(1000, seed).records(epoch, np.arange(1000)).tolist()

    assert records(1, 2) == records(1, 2)
    assert records(1, 2) != records(1, 3)
    assert records(1, 2) != records(2, 2)
    # A walk along the diagonal of seed and epoch must not meet the same order, as with a plain sum it would.
    assert records(1, 3) != records(2, 2)


@pytest.mark.parametrize("order", ORDERS)
def test_any_part_can_be_read_alone(order):
    whole = order(100, 5).records(1, np.arange(100))
    np.testing.assert_array_equal(order(100, 5).records(1, np.arange(3, 90, 4)), whole[3:90:4])


def test_the_cipher_leaves_no_pattern():
    size, epochs = 1000, 200
    records = np.array([CipherShuffled(size, 0).records(epoch, np.arange(size)) for epoch in range(epochs)])
    # How often each tenth of the set comes in the first tenth of an epoch, and how far neighbours lie apart.
    counts = np.bincount(records[:, :100].ravel() // 100, minlength=10)
    assert np.abs(counts - 100 * epochs / 10).max() < 5 * np.sqrt(100 * epochs / 10)
    gaps = np.abs(np.diff(records.astype(float), axis=1))
    assert abs(gaps.mean() - size / 3) < 5
    assert abs(np.mean(gaps == 1) - 2 / size) < 0.0005


def test_only_large_sets_are_shuffled_without_memory():
    assert isinstance(shuffled(2**20, 0), Shuffled)
    assert isinstance(shuffled(2**20 + 1, 0), CipherShuffled)


def test_mixed_seeds_tell_parts_apart():
    seeds = {mixed_seed(seed, part) for seed in range(50) for part in (*range(50), "a", "b")}
    assert len(seeds) == 50 * 52
    assert all(0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("positions", [range(0, 20, 1), range(2, 17, 4), range(1, 2, 3)])
def test_split_epochs_is_division_with_rest(positions, size):
    pieces = [
        (epoch, offset) for epoch, offsets in split_epochs(np.array(positions), size) for offset in offsets.tolist()
    ]
    assert pieces == [divmod(position, size) for position in positions]


def test_positions_of_all_hosts_are_the_batch():
    for hosts in (1, 2, 4):
        schedules = [
            BatchSchedule(
                num_examples=10, num_epochs=1, batch_size=8, remainder="pad", shard_index=i, shard_count=hosts
            )
            for i in range(hosts)
        ]
        assert sorted(p for schedule in schedules for p in schedule.positions(1)) == [8, 9]
