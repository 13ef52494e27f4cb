"""The processes of a trial: one `HostWorker`, or several that train it together as one `jax.distributed` job.

A group starts and ends as a whole. What the first process says is what the trial says; of the others only failures
count. Whoever asks gets an exception as soon as any of them is dead.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from kauldron_core.errors import RunFailed
from ray_cluster.cluster.placement import actor_options
from ray_cluster.cluster.slices import Reservation
from ray_cluster.spec import TpuSlice
from ray_cluster.workers.host_worker import ENDINGS, HostWorker, Record
from ray_cluster.workers.jax_process import ProcessSettings, Seat

_ANSWER_S = 2.0
_START_S = 120.0
_SLICE_S = 5.0
_DEATH_S = 3.0
"""A process whose peer has died raises before the death is known; so long it is waited for."""


class WorkerGroup:
    """Processes in the current placement group, or on a TPU slice, one in each bundle.

    Args:
      process: What each is told.
      resources: What each owns.
      variables: The environment of each.
      num_hosts: How many there are.
      tpu_slice: The slice they have for themselves; without one they are where the placement group is.
    """

    def __init__(
        self,
        process: ProcessSettings,
        *,
        resources: Mapping[str, float],
        variables: Mapping[str, str],
        num_hosts: int,
        tpu_slice: TpuSlice | None = None,
    ):
        self._members: list[Any] = []
        self._make = functools.partial(self._make_members, process, resources, variables, num_hosts)
        self._slice = Reservation(tpu_slice, resources=resources, num_hosts=num_hosts) if tpu_slice else None
        self._polling: dict[int, Any] = {}
        self._ended: set[int] = set()
        self._last: Record | None = None
        if self._slice is None:
            self._make(ray.util.get_current_placement_group())

    def _make_members(
        self,
        process: ProcessSettings,
        resources: Mapping[str, float],
        variables: Mapping[str, str],
        num_hosts: int,
        group: PlacementGroup | None,
    ) -> None:
        for rank in range(num_hosts):
            # The supervisor's own empty bundle is not part of the group, so the processes have the first ones.
            strategy = group and PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
            options = {**actor_options(resources), "runtime_env": {"env_vars": dict(variables)}}
            seat = Seat(rank=rank, num_processes=num_hosts) if num_hosts > 1 else None
            worker = ray.remote(HostWorker).options(**options, scheduling_strategy=strategy or "DEFAULT")
            self._members.append(worker.remote(process, seat))
        self._addresses = [member.address.remote() for member in self._members] if num_hosts > 1 else []
        self._warming = [member.warm.remote(*self._addresses) for member in self._members]
        self._give_up_at = time.monotonic() + _START_S

    def warmed(self, *, wait_s: float) -> dict[str, Any] | None:
        """Returns what the first process is, None while they are not all ready.

        Raises:
          RunFailed: If one has not even started in time.
          Exception: What kept one from being ready.
        """
        if self._slice is not None and not self._members:
            group = self._slice.take(wait_s=max(wait_s, _SLICE_S))
            if group is None:
                return None
            self._make(group)
        ready, _ = ray.wait(self._warming, num_returns=len(self._warming), timeout=wait_s)
        for one in ready:
            ray.get(one)
        if len(ready) < len(self._warming):
            self._refuse_missing()
            return None
        facts = ray.get(self._warming)
        nodes = {"nodes": [one["node"] for one in facts]} if len(facts) > 1 else {}
        return {**facts[0], **nodes}

    def start(self, folder: str, *, in_lockstep: bool) -> None:
        """Begins the trial or pack of a folder, which must be the only one."""
        self._polling, self._ended, self._last = {}, set(), None
        ray.get(
            [
                member.start.remote(folder, in_lockstep=in_lockstep and rank == 0, is_decided_about=in_lockstep)
                for rank, member in enumerate(self._members)
            ]
        )

    def poll(self, *, at_once: bool) -> list[Record]:
        """Returns what the trial says; its last record when all processes have ended it.

        Args:
          at_once: Return as soon as there is anything.
        """
        for rank, member in enumerate(self._members):
            if rank not in self._polling and rank not in self._ended:
                self._polling[rank] = member.poll.remote(0.5, at_once=at_once and rank == 0)
        # A process that hangs altogether does not even answer.
        ready, _ = ray.wait(list(self._polling.values()), num_returns=1, timeout=_ANSWER_S)
        records: list[Record] = []
        for rank in [rank for rank, one in self._polling.items() if one in ready]:
            records += self._taken(rank, ray.get(self._polling.pop(rank)))
        if self._last is not None and len(self._ended) == len(self._members):
            return [*records, self._last]
        return records

    def stop(self) -> None:
        """Asks the trial to save and end."""
        for member in self._members:
            member.stop.remote()

    def save_and_end(self, *, timeout_s: float) -> bool:
        """Lets the trial save and end, and says whether the processes can take another one."""
        self.stop()
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(RayActorError):
            while time.monotonic() < deadline:
                if any(record["kind"] in ENDINGS for record in self.poll(at_once=False)):
                    return True
        return False

    def kill(self) -> None:
        """Ends all processes at once."""
        for member in self._members:
            ray.kill(member)
        if self._slice is not None:
            self._slice.release()

    def _refuse_missing(self) -> None:
        """Names the processes that have not started, once it is time to give up on them."""
        if not self._addresses or time.monotonic() < self._give_up_at:
            return
        there, _ = ray.wait(self._addresses, num_returns=len(self._addresses), timeout=0)
        missing = [str(rank) for rank, one in enumerate(self._addresses) if one not in there]
        if missing:
            number = len(self._members)
            raise RunFailed(f"process {', '.join(missing)} of {number} did not start within {_START_S:g} s")

    def _taken(self, rank: int, records: list[Record]) -> list[Record]:
        """Returns those of a process's records that the trial says."""
        endings = [record for record in records if record["kind"] in ENDINGS]
        if endings:
            self._ended.add(rank)
            if endings[0]["kind"] == "raised" and len(self._members) > 1:
                self._raise_if_one_is_dead()
                # Without it the others wait for ever in their next collective.
                self._ended = set(range(len(self._members)))
            if rank == 0 or endings[0]["kind"] == "raised":
                self._last = endings[0]
        return [record for record in records if record not in endings] if rank == 0 else []

    def _raise_if_one_is_dead(self) -> None:
        """Raises when a process is dead: what another one has raised is only what came of that."""
        deadline = time.monotonic() + _DEATH_S
        while time.monotonic() < deadline:
            for member in self._members:
                with contextlib.suppress(GetTimeoutError):
                    ray.get(member.address.remote(), timeout=1.0)
            time.sleep(0.5)
