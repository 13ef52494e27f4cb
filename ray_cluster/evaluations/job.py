"""`EvalJob`: how the evaluations of a run that exists are spread over evaluator actors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from evaluators.shards import check_number
from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from ray_cluster.cluster import placement
from ray_cluster.spec import Resources, check_resources

_MOST = 64
"""Actors that a job starts where nobody said how many."""


@dataclass(frozen=True, kw_only=True)
class EvalJob:
    """How evaluations are spread over processes.

    Attributes:
      run_dir: The run directory, or the folder of a trial on its own; all nodes must see it.
      num_actors: How many evaluate side by side. None: as many as the cluster carries, and there is work for.
      resources: What each of them owns. None: what the evaluators' `run` says, else one CPU.
      shards: In how many shares of its data each evaluation is split; more than one go over all actors.
      trust: Packages whose names configs may call, beside the built-in list.
      python_path: Folders put on every actor's path beside the working directory.
      env: Variables of every actor.
    """

    run_dir: str
    num_actors: int | None = None
    resources: Resources | None = None
    shards: int = 1
    trust: tuple[str, ...] = ()
    python_path: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_actors is not None and self.num_actors < 1:
            raise ConfigError(f"--actors: must be at least 1, not {self.num_actors}.")
        check_number(self.shards)
        check_resources(self.resources or {}, at="evaluators' resources")


def refuse_too_many(job: EvalJob, nodes: list[Resources]) -> None:
    """Raises for more actors than the nodes could ever hold.

    Raises:
      ConfigError: With what was asked for and what there is room for.
    """
    wanted = job.num_actors or 1
    resources = job.resources or {}
    room = placement.count_room(resources, nodes, most=wanted)
    if room < wanted:
        each = ", ".join(f"{name} {amount:g}" for name, amount in resources.items())
        raise ConfigError(
            f"--actors: asked for {wanted} times {each}. Room for: {room}, on {len(nodes)} "
            f"{'node' if len(nodes) == 1 else 'nodes'}."
        )


def count_actors(job: EvalJob, nodes: list[Resources], *, num_tasks: int | None) -> int:
    """Returns how many actors a job gets: as many as it asks for, else as have room and work.

    Args:
      job: The job.
      nodes: The resources of each node.
      num_tasks: How many evaluations there are. None: they come one after the other, and are made one by one.
    """
    if job.num_actors is not None:
        return job.num_actors
    pieces = max((1 if num_tasks is None else num_tasks) * job.shards, 1)
    return placement.count_room(job.resources or {}, nodes, most=min(pieces, _MOST))


def shared_folder(run_or_trial: str | os.PathLike[str]) -> rundir.RunDir:
    """Returns the run directory that a path is or lies in, or else the folder of the trial in its place."""
    path = rundir.local_path(run_or_trial).absolute()
    run = rundir.RunDir(path)
    return run if run.exists() else rundir.TrialDir(path).run() or run
