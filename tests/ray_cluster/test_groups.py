"""Processes that are to find each other: those that never will are told so."""

import subprocess
import sys

import pytest

from kauldron_core.errors import RunFailed
from ray_cluster.workers.jax_process import Seat, free_address, join_group

JOIN = """
from ray_cluster.workers.jax_process import Seat, free_address, join_group
address = free_address()
try:
    join_group(Seat(rank={rank}, num_processes=2, timeout_s=2), address, ["here", "here"])
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


def test_an_address_that_others_can_not_reach_is_refused():
    """G10: an address that others can not reach is refused."""
    with pytest.raises(RunFailed, match=r"node a: its own address is 127\.0\.1\.1:5, where the other hosts"):
        join_group(Seat(rank=1, num_processes=2), "127.0.1.1:5", ["a", "b"])


def test_an_address_is_free_and_says_its_port():
    host, _, port = free_address().rpartition(":")
    assert host and 1024 <= int(port) < 65536


@pytest.mark.process
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_a_process_whose_peer_never_comes_ends_at_the_time_it_was_given(rank):
    """G08: a process whose peer never comes ends at the time it was given."""
    done = subprocess.run([sys.executable, "-c", JOIN.format(rank=rank)], capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert "DEADLINE_EXCEEDED" in said or f"process {rank} of 2 did not find the others" in said
