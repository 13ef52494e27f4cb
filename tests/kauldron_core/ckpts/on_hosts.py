"""One of two hosts that save one state together and read it again: `on_hosts.py FOLDER PORT PROCESS`."""

from __future__ import annotations

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from kauldron_core import ckpts

VALUES = np.random.default_rng(0).random((8, 6), np.float32)


def main() -> None:
    folder, port, process = sys.argv[1], sys.argv[2], int(sys.argv[3])
    jax.distributed.initialize(
        f"127.0.0.1:{port}",
        num_processes=2,
        process_id=process,
        coordinator_bind_address=f"127.0.0.1:{port}",
        cluster_detection_method="deactivate",
        initialization_timeout=60,
    )
    mesh = jax.make_mesh((4,), ("all",), axis_types=(jax.sharding.AxisType.Auto,))
    split = NamedSharding(mesh, PartitionSpec("all"))
    whole = NamedSharding(mesh, PartitionSpec())
    wanted = {"kernel": split, "scale": whole}
    state = {
        name: jax.make_array_from_callback(VALUES.shape, sharding, lambda index: VALUES[index])
        for name, sharding in wanted.items()
    }
    template = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), state)

    checkpointer = ckpts.Checkpointer(workdir=folder, max_to_keep=1, save_interval_steps=None, save_interval_s=0.05)
    for step in (1, 2):
        while not checkpointer.is_due(step):
            pass  # One clock for both: a host that went on alone would wait for the other for ever.
        checkpointer.save(state, {"next": step}, step=step)
        checkpointer.wait()
        checkpointer.finished()
    multihost_utils.sync_global_devices("saved")
    found = checkpointer.load(template)
    if checkpointer.all_steps != [2] or found.step != 2 or found.data_state != {"next": 2}:
        raise SystemExit(f"{checkpointer.all_steps}, {found.step}, {found.data_state}")
    for name, array in checkpointer.load(template, only=("kernel", "scale")).state.items():
        for shard in array.addressable_shards:
            if array.sharding != wanted[name] or not np.array_equal(shard.data, VALUES[shard.index]):
                raise SystemExit(f"{name}: other values, or elsewhere")
    checkpointer.close()
    print("ok")


main()
