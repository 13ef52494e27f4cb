"""Saves a state that is split over this process's devices, and reads what others saved: `on_devices.py FOLDER COUNT`.

Each line of standard input is a command: `save`, or `read N`, which reads what N devices saved. Prints `ok` for each.
"""

from __future__ import annotations

import os
import pathlib
import sys

COUNT = int(sys.argv[2])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={COUNT}"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

from kauldron_core import ckpts  # noqa: E402


def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "kernel": rng.random((16, 8), np.float32),
        "wide": rng.random((3, 24)).astype(jax.numpy.bfloat16),
        "scale": rng.random((8,), np.float32),
        "count": np.int32(7),
    }


def shardings(mesh: jax.sharding.Mesh) -> dict[str, NamedSharding]:
    specs = {"kernel": ("all",), "wide": (None, "all"), "scale": (), "count": ()}
    return {name: NamedSharding(mesh, PartitionSpec(*spec)) for name, spec in specs.items()}


def main() -> None:
    if jax.device_count() != COUNT:
        raise SystemExit(f"{jax.device_count()} devices, not {COUNT}")
    folder = pathlib.Path(sys.argv[1])
    mesh = jax.make_mesh((COUNT,), ("all",), axis_types=(jax.sharding.AxisType.Auto,))
    wanted = shardings(mesh)
    for line in sys.stdin:
        command, _, other = line.strip().partition(" ")
        if command == "save":
            checkpointer = ckpts.Checkpointer(workdir=folder / str(COUNT))
            checkpointer.save(jax.device_put(values(), wanted), step=1)
            checkpointer.close()
        else:
            template = {
                name: jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=wanted[name])
                for name, value in values().items()
            }
            check(ckpts.load(folder / other / "checkpoints", template).state, wanted)
            part = ckpts.load(folder / other / "checkpoints", template, only=("kernel",)).state
            check({"kernel": part["kernel"]}, wanted)
        print("ok", flush=True)


def check(state: dict[str, jax.Array], wanted: dict[str, NamedSharding]) -> None:
    for name, array in state.items():
        if array.sharding != wanted[name]:
            raise SystemExit(f"{name}: {array.sharding}, not {wanted[name]}")
        if np.asarray(array).tobytes() != values()[name].tobytes():
            raise SystemExit(f"{name}: other bits")
    rows = {shard.data.shape[0] for shard in state["kernel"].addressable_shards}
    if rows != {16 // COUNT}:
        raise SystemExit(f"kernel: pieces of {rows} rows on {COUNT} devices")


main()
