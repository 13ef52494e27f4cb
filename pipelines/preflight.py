"""`kdr preflight`: looks at every node of a cluster. A job of `kdr submit` runs it first."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from pipelines.cli.run import DONE, FAILED, run
from pipelines.report import make_console, make_table
from ray_cluster.cluster import environment, preflight

EPILOG = """\b
Examples:
  kdr preflight --root=/shared/runs --address=head:6379
"""


@click.command("preflight", epilog=EPILOG, context_settings={"max_content_width": 120})
@click.option("--root", required=True, metavar="FOLDER", help="Folder of all runs; every node must see it.")
@click.option("--address", help="Ray to join: host:port of its head. Default: RAY_ADDRESS.")
@click.option("--min-free-gb", type=float, default=1.0, show_default=True, help="Least free space in that folder.")
def command(root: str, address: str | None, min_free_gb: float) -> int:
    """Look at every node of a cluster: versions, JAX's platform, free disk, the run folder, our packages."""
    rundir.refuse_address(root, at="--root")
    where = environment.read_address(address)
    if where == "local":
        raise ConfigError("--address: a cluster is needed; give host:port of its head, or set RAY_ADDRESS.")
    nodes = preflight.look_around(root, address=where, min_free_gb=min_free_gb)
    console = make_console()
    rows = [[node.name, node.python, node.jax, node.platform, f"{node.free_gb:.0f}"] for node in nodes]
    names = ["node", "python", "jax", "platform", "free GB"]
    console.print(make_table([(name, "left") for name in names], rows, width=console.width))
    faults = [f"{node.name}: {fault}" for node in nodes for fault in node.faults]
    for fault in faults:
        console.print(fault, markup=False, soft_wrap=True)
    return FAILED if faults else DONE


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr preflight` and returns its exit status."""
    return run(command, argv, program="kdr preflight")


if __name__ == "__main__":
    sys.exit(main())
