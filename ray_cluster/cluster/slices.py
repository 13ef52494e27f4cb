"""TPU slices: Ray's own reservation of all hosts of one slice, for the processes of one trial.

Hosts of a slice are told from others by the labels that Ray gives TPU nodes. Whoever holds the head of a slice has the
slice; its other hosts are then asked for by the slice's name. The head is held as long as they are: another trial would
take it for that of a free slice, and wait there while other slices are idle.
"""

from __future__ import annotations

import contextlib
from collections import Counter

import ray
from ray._private.accelerators.tpu import VALID_TPU_TOPOLOGY, infer_tpu_pod_type_from_topology
from ray.util import tpu
from ray.util.placement_group import PlacementGroup

from kauldron_core.errors import ConfigError, RunFailed, unknown_name
from ray_cluster.spec import Resources, TpuSlice

_POD_TYPE, _TOPOLOGY, _WORKER = "ray.io/tpu-pod-type", "ray.io/tpu-topology", "ray.io/tpu-worker-id"


def count(asked: TpuSlice) -> int:
    """Returns how many such slices the cluster has, busy or not.

    Raises:
      ConfigError: If there are none, with what there is; or if there can be none.
    """
    if asked.generation not in VALID_TPU_TOPOLOGY:
        raise ConfigError(unknown_name("TPU", asked.generation, VALID_TPU_TOPOLOGY, at="run.accelerator"))
    known = sorted(VALID_TPU_TOPOLOGY[asked.generation], key=lambda one: [int(size) for size in one.split("x")])
    if asked.topology not in known:
        raise ConfigError(unknown_name(f"{asked.generation} topology", asked.topology, known, at="run.topology"))
    found = tpu.get_num_tpu_slices(asked.topology, f"TPU-{asked.generation.upper()}")
    if not found:
        raise ConfigError(f"run.topology: asked for a slice {asked}. Available: {_available() or 'no TPU'}.")
    return found


class Reservation:
    """A slice that is being asked for, or held.

    Args:
      asked: Which.
      resources: What each of its processes owns.
      num_hosts: How many processes there are, one on each host.
    """

    def __init__(self, asked: TpuSlice, *, resources: Resources, num_hosts: int):
        self._asked = asked
        self._resources = dict(resources)
        self._num_hosts = num_hosts
        self._group: tpu.SlicePlacementGroup | None = None

    def take(self, *, wait_s: float) -> PlacementGroup | None:
        """Returns the placement group, a bundle for each host in the order of their numbers; None while all are taken.

        Raises:
          RunFailed: If the cluster has no such slice any more.
        """
        if self._group is None:
            with contextlib.suppress(TimeoutError):
                self._group = self._reserve(wait_s)
        return self._group.slice_placement_group if self._group is not None else None

    def _reserve(self, wait_s: float) -> tpu.SlicePlacementGroup:
        try:
            return tpu.SlicePlacementGroup(
                self._asked.topology,
                self._asked.generation,
                resources_per_bundle=self._resources,
                chips_per_vm=self._asked.num_chips // self._num_hosts,
                head_reservation_timeout_s=wait_s,
                bundle_label_selector=[self._labels(rank) for rank in range(self._num_hosts)],
            )
        except (RuntimeError, ValueError) as error:
            raise RunFailed(f"slice {self._asked}: {str(error).splitlines()[0]}") from error

    def _labels(self, rank: int) -> dict[str, str]:
        # The TPU runtime numbers the hosts; ours have the same numbers.
        number = {_WORKER: str(rank)} if self._num_hosts > 1 else {}
        kind = infer_tpu_pod_type_from_topology(self._asked.topology, self._asked.generation)
        return {_POD_TYPE: str(kind), **number}

    def release(self) -> None:
        """Gives the slice back."""
        if self._group is not None:
            self._group.shutdown()
            self._group = None


def _available() -> str:
    """Returns what TPU nodes there are, in words."""
    labels = [node.get("Labels") or {} for node in ray.nodes() if node["Alive"] and node["Resources"].get("TPU")]
    kinds = Counter(f"{one.get(_POD_TYPE, 'TPU')} {one.get(_TOPOLOGY, '')}".strip() for one in labels)
    return ", ".join(f"{kind} (hosts: {number})" for kind, number in sorted(kinds.items()))
