"""Where the trials of a pack go."""

from __future__ import annotations

import pytest

from kauldron_core.packs.running.placement import choose

GIB = 2**30


@pytest.mark.parametrize(
    ("trials", "devices", "rows", "grid"),
    [
        (512, 1, 512, (1, 1)),
        (512, 8, 512, (8, 1)),
        (8, 8, 8, (8, 1)),
        # One of the rows is a ghost.
        (11, 8, 12, (4, 2)),
        (15, 8, 16, (8, 1)),
        (2, 8, 2, (2, 4)),
        (1, 8, 1, (1, 8)),
        (3, 8, 3, (3, 2)),
    ],
)
def test_trials_are_dealt_out_and_batches_are_split_where_devices_are_left(
    trials: int, devices: int, rows: int, grid: tuple[int, int]
) -> None:
    found = choose(trials, num_devices=devices, batch_size=64)
    assert (found.num_rows, (found.trial_devices, found.batch_devices)) == (rows, grid)


def test_a_batch_is_split_into_equal_parts_only() -> None:
    assert choose(1, num_devices=8, batch_size=12).batch_devices == 6
    assert choose(1, num_devices=8, batch_size=7).batch_devices == 7
    assert choose(2, num_devices=8, batch_size=1).num_devices == 2


def test_memory_decides_where_a_device_would_have_too_many_trials() -> None:
    roomy = choose(9, num_devices=8, batch_size=64, trial_bytes=GIB, memory_bytes=80 * GIB)
    assert roomy.reason.startswith("3 of 9 trials on each of 3 groups of devices, batches split over the 2 of a group")
    tight = choose(9, num_devices=8, batch_size=64, trial_bytes=GIB, memory_bytes=7 * GIB)
    assert tight.reason == "2 of 9 trials on each of 5 devices, 3 unused"
    # Nothing fits: as little as possible on a device.
    assert choose(9, num_devices=8, batch_size=64, trial_bytes=GIB, memory_bytes=GIB).trial_devices == 5
