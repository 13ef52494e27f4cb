"""Two real JAX processes: each reads its share, and together they hold the global batch."""

import itertools
import json
import os
import socket
import subprocess
import sys

import pytest

_HOST = """
import sys
import json
import jax
import numpy as np
from kauldron_core import data

port, host = int(sys.argv[1]), int(sys.argv[2])
# Made before JAX knows of the other process: the share is looked up when iterating.
ds = data.InMemoryPipeline(
    lambda: {"id": np.arange(10)}, batch_size=4, num_epochs=1, shuffle=True, seed=1, batch_drop_remainder="pad"
)
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=host)
mesh = jax.make_mesh((2,), ("hosts",), axis_types=(jax.sharding.AxisType.Auto,))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("hosts"))
own = [batch["id"][batch[data.PADDING_MASK]].tolist() for batch in ds]
count = jax.jit(lambda batch: (batch["id"].shape[0], batch[data.PADDING_MASK].sum(), (batch["id"]).sum()))
totals = [[int(value) for value in count(batch)] for batch in ds.device_put(sharding)]
print("RESULT", json.dumps({"own": own, "totals": totals, "len": len(ds)}), flush=True)
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.process
@pytest.mark.slow
def test_two_processes_share_every_batch(tmp_path):
    script = tmp_path / "host.py"
    script.write_text(_HOST)
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "JAX_PLATFORMS": "cpu"}
    port = str(free_port())
    hosts = [
        subprocess.Popen([sys.executable, script, port, str(host)], stdout=subprocess.PIPE, text=True, env=environment)
        for host in range(2)
    ]
    outputs = [host.communicate(timeout=100)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0]
    first, second = (json.loads(output.split("RESULT", 1)[1]) for output in outputs)
    assert first["len"] == second["len"] == 3
    together = [a + b for a, b in zip(first["own"], second["own"], strict=True)]
    assert [len(batch) for batch in together] == [4, 4, 2]
    assert sorted(itertools.chain(*together)) == list(range(10))
    assert first["totals"] == second["totals"]
    assert [total[:2] for total in first["totals"]] == [[4, 4], [4, 4], [4, 2]]
    assert [total[2] for total in first["totals"][:2]] == [sum(batch) for batch in together[:2]]
