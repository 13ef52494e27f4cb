"""Looks at every node of a cluster before a sweep starts there: what would go wrong in the night goes wrong now."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kauldron_core import rundir
from kauldron_core.errors import RunFailed
from ray_cluster.cluster import environment

PACKAGES = ("kauldron_core", "evaluators", "ray_cluster", "pipelines")
_ANSWER_S = 60.0
_PROBE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Node:
    """What a node says of itself.

    Attributes:
      name: Its host name.
      python: Version of its interpreter.
      jax: Version of JAX.
      platform: What JAX runs on there; `cpu` where the node has no accelerator.
      free_gb: Free space where runs lie.
      faults: What is wrong, in words.
    """

    name: str
    python: str
    jax: str
    platform: str
    free_gb: float
    faults: tuple[str, ...] = ()


def look_around(root: str | os.PathLike[str], *, address: str, min_free_gb: float = 1.0) -> list[Node]:
    """Joins a cluster and returns what every node of it says of itself.

    Args:
      root: Folder of all runs, which every node must see and write.
      address: `host:port` of its head.
      min_free_gb: Less free space there is a fault.

    Raises:
      RunFailed: If a node does not answer in a minute.
    """
    environment.prepare_driver(address)
    import ray  # reads its settings when it is imported

    ray.init(address=address, log_to_driver=False, configure_logging=False)
    try:
        return _compared(sorted(_asked(ray, root, min_free_gb), key=lambda node: node.name))
    finally:
        ray.shutdown()


def _asked(ray: Any, root: str | os.PathLike[str], min_free_gb: float) -> list[Node]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    folder = rundir.make_folder(root)
    token = rundir.write_probe(folder)
    asked: dict[Any, str] = {}
    for node in (node for node in ray.nodes() if node["Alive"]):
        has_gpu = bool(node["Resources"].get("GPU"))
        variables = {} if has_gpu else {"JAX_PLATFORMS": "cpu"}
        look = ray.remote(describe_node).options(
            num_cpus=0,
            num_gpus=0.01 if has_gpu else 0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            runtime_env={"env_vars": {**variables, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}},
        )
        asked[look.remote(str(folder), token, "gpu" if has_gpu else "cpu", min_free_gb)] = node["NodeManagerHostname"]
    done, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_S)
    if silent:
        raise RunFailed(f"node {asked[silent[0]]} does not answer, or is too busy to look around on it.")
    return [Node(**ray.get(one)) for one in done]


def describe_node(root: str, token: str, platform: str, min_free_gb: float) -> dict[str, Any]:
    """Returns the fields of a `Node` of the machine that this runs on."""
    faults = [*_package_faults(), *_root_faults(root, token)]
    free_gb = shutil.disk_usage(root).free / 1e9 if os.path.isdir(root) else 0.0
    if free_gb < min_free_gb:
        faults.append(f"{free_gb:.1f} GB free at {root}; at least {min_free_gb:g} are wanted")
    import jax

    try:
        found = jax.default_backend()
    except RuntimeError as error:
        found = "none"
        faults.append(f"JAX can't start: {str(error).splitlines()[0]}")
    if found != platform:
        faults.append(f"JAX runs on {found}, and the node has a {platform}")
    return {
        "name": os.uname().nodename,
        "python": ".".join(map(str, sys.version_info[:3])),
        "jax": importlib.metadata.version("jax"),
        "platform": found,
        "free_gb": round(free_gb, 1),
        "faults": tuple(faults),
    }


def _package_faults() -> list[str]:
    """Returns what is wrong with our own packages: another project's `pipelines` may come first on the path."""
    folders: dict[str, str] = {}
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        if found is None or not found.submodule_search_locations:
            return [f"package {name} is not there"]
        folders[name] = str(Path(next(iter(found.submodule_search_locations))).resolve().parent)
    if len(set(folders.values())) > 1:
        return ["our packages come from different places: " + ", ".join(f"{k} in {v}" for k, v in folders.items())]
    return []


def _root_faults(root: str, token: str) -> list[str]:
    try:
        rundir.check_probe(root, token, timeout_s=_PROBE_S)
    except RunFailed as error:
        return [str(error)]
    return []


def _compared(nodes: Sequence[Node]) -> list[Node]:
    """Returns the nodes, those with other versions than the first one marked."""
    first = nodes[0]
    return [_marked(node, first) for node in nodes]


def _marked(node: Node, first: Node) -> Node:
    differences = [
        f"{kind} {own} here and {other} on {first.name}"
        for kind, own, other in (("Python", node.python, first.python), ("JAX", node.jax, first.jax))
        if own != other
    ]
    return Node(**{**vars(node), "faults": (*node.faults, *differences)})
