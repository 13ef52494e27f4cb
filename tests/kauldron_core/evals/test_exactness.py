"""Every example counts once: whatever the size of the data, the batch, the number of hosts and devices."""

from __future__ import annotations

import os
import pathlib
import socket
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


@pytest.mark.soak
@pytest.mark.process
def test_an_evaluation_is_that_of_numpy_on_up_to_eight_devices() -> None:
    """E16: an evaluation is that of numpy on up to eight devices."""
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


HOST = """
import sys
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
from kauldron_core.errors import ConfigError
from tests.kauldron_core.evals import exactness
exactness.evaluator(8, 1, False).check()
try:
    exactness.evaluator(8, 1, True).check()
except ConfigError as error:
    assert "unmasked: without a `mask` argument" in str(error), error
    print("refused")
"""


@pytest.mark.process
def test_on_several_hosts_what_takes_no_mask_is_refused_when_the_config_resolves() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", HOST, address, str(index)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    ended = [host.communicate(timeout=100) for host in hosts]
    for host, (output, errors) in zip(hosts, ended, strict=True):
        assert host.returncode == 0, errors[-3000:]
        assert output.split()[-1] == "refused"
