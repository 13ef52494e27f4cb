"""Every example counts once: whatever the size of the data, the batch, the number of hosts and devices."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import hypothesis
import pytest

from tests.kauldron_core.evals import exactness

ROOT = pathlib.Path(__file__).parents[3]


@hypothesis.settings(max_examples=25)
@hypothesis.given(exactness.cases(1))
def test_an_evaluation_is_that_of_numpy(case: tuple[int, int, int, int, bool]) -> None:
    exactness.check(*case)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 16])
@pytest.mark.parametrize("shard_count", [1, 2, 4])
def test_shares_without_an_example_count_none(size: int, shard_count: int) -> None:
    exactness.check(size, 8, shard_count, 1, True)


@pytest.mark.process
def test_e16_an_evaluation_is_that_of_numpy_on_up_to_eight_devices() -> None:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "PYTHONPATH": str(ROOT)}
    child = subprocess.run(
        [sys.executable, "-m", "tests.kauldron_core.evals.exactness"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert child.returncode == 0, child.stdout[-3000:] + child.stderr[-3000:]
    assert child.stdout.split()[-1] == "exact"
