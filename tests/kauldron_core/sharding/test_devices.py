"""Eight devices in one process, and two processes: what only children with an environment of their own can show."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent


def start(*command, devices):
    environment = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    environment["PYTHONPATH"] = str(FOLDER.parents[2])
    return subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.process
def test_eight_devices():
    child = start("-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / "on_eight_devices.py"), devices=8)
    output = child.communicate(timeout=110)[0]
    assert child.returncode == 0, output[-8000:]
    assert " passed" in output and "skipped" not in output


HOST = """
import json, sys
import jax, numpy as np
from kauldron_core import kd

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
host = jax.process_index()
own = {"x": np.arange(8.0, dtype=np.float32).reshape(4, 2) + 100 * host, "scale": np.float32(7)}


def seen(**fields):
    strategy = kd.sharding.ShardingStrategy(mesh=kd.sharding.MeshSpec(**fields))
    batch = strategy.put_batch(own)
    stack = strategy.put_stack(jax.tree.map(lambda x: np.stack([x, x + 1]), own))
    for index in range(2):
        one = jax.jit(lambda stack: stack[index], out_shardings=batch["x"].sharding)(stack["x"])
        for got, expected in zip(one.addressable_shards, batch["x"].addressable_shards, strict=True):
            np.testing.assert_array_equal(got.data, np.asarray(expected.data) + index)
    assert batch["x"].shape == (8, 2) and float(batch["scale"].addressable_data(0)) == 7
    whole = jax.jit(lambda x: x, out_shardings=jax.tree.map(lambda x: x.sharding, batch["scale"]))(batch["x"])
    rows = sorted(np.asarray(whole.addressable_data(0))[:, 0].tolist())
    return [tuple(batch["x"].sharding.spec), sorted(batch["x"].addressable_shards[0].data.shape), rows]


weights = kd.sharding.device_put(np.arange(4), kd.sharding.FIRST_DIM)
print("RESULT", json.dumps({
    "data": seen(),
    "dcn": seen(axes=("data", "model"), ici_shape=(1, 2), dcn_shape=(2, 1)),
    # Both processes hold half of every row: each needs the examples that the other has read.
    "model": seen(axes=("model", "data"), ici_shape=(2, 2)),
    "weights": [weights.shape, weights.addressable_shards[1].data.tolist()],
}), flush=True)
jax.distributed.shutdown()
"""


@pytest.mark.process
def test_two_processes_give_their_parts_of_a_batch():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    hosts = [start("-c", HOST, address, str(index), devices=2) for index in range(2)]
    outputs = [host.communicate(timeout=100)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], "\n".join(outputs)[-8000:]
    first, second = (json.loads(output.split("RESULT", 1)[1].splitlines()[0]) for output in outputs)
    rows = [0, 2, 4, 6, 100, 102, 104, 106]
    for found in (first, second):
        assert found["data"] == [["data"], [2, 2], rows]
        assert found["dcn"] == [["data"], [2, 4], rows]
        assert found["model"] == [["data"], [2, 4], rows]
        assert found["weights"] == [[8], [2, 3]]
