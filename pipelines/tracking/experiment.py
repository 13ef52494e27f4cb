"""One sweep in MLflow: an experiment, a parent run, and a child run a trial, found again after a restart."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kauldron_core import rundir
from pipelines.tracking.store import Store

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

KIND = "kdr.kind"
SWEEP = "kdr.sweep"
TRIAL = "kdr.trial"
RUN_DIR = "kdr.run_dir"
STATUS = "kdr.status"
METRIC = "kdr.metric"
DIRECTION = "kdr.direction"
PARENT = "mlflow.parentRunId"

_PAGE = 1000


class SweepRecord:
    """The experiment of one sweep and what is in it.

    Attributes:
      experiment_id: The experiment.
      parent: The parent run's id.
    """

    def __init__(self, client: MlflowClient, store: Store, run: rundir.RunDir) -> None:
        self._client = client
        self._sweep_id = sweep_id(run)
        self.experiment_id = self._find_experiment(f"{run.name}-{self._sweep_id}", store)
        found = list(search_runs(client, [self.experiment_id]))
        self._children = {found_run.data.tags[TRIAL]: found_run for found_run in found if TRIAL in found_run.data.tags}
        parents = [found_run for found_run in found if found_run.data.tags.get(KIND) == "sweep"]
        self.parent = parents[0].info.run_id if parents else self._create_parent(run)

    def child(self, trial: str) -> Run | None:
        """Returns the run of a trial, None if it has none yet."""
        return self._children.get(trial)

    def create_child(self, trial: rundir.TrialDir, *, start_ms: int) -> Run:
        """Makes the run of a trial."""
        run = self._create(trial.name, {KIND: "trial", TRIAL: trial.name, PARENT: self.parent}, start_ms)
        self._children[trial.name] = run
        return run

    def _create_parent(self, run: rundir.RunDir) -> str:
        tags = {KIND: "sweep", RUN_DIR: str(run.path.absolute()), **_ranking_tags(run)}
        return self._create(run.name, tags, int(time.time() * 1000)).info.run_id

    def _create(self, name: str, tags: Mapping[str, str], start_ms: int) -> Run:
        common = {SWEEP: self._sweep_id, "mlflow.user": _user(), "mlflow.source.name": "kdr"}
        return self._client.create_run(self.experiment_id, start_time=start_ms, run_name=name, tags={**common, **tags})

    def _find_experiment(self, name: str, store: Store) -> str:
        """Returns the sweep's experiment; where its name is taken or was deleted, the next free one is used."""
        number = 1
        while True:
            numbered = name if number == 1 else f"{name}-{number}"
            found = self._client.get_experiment_by_name(numbered)
            if found is None:
                folder = store.artifact_folder
                location = None if folder is None else str(folder / numbered)
                return self._client.create_experiment(numbered, location, tags={SWEEP: self._sweep_id})
            if found.lifecycle_stage == "active" and found.tags.get(SWEEP) == self._sweep_id:
                return found.experiment_id
            number += 1


def _ranking_tags(run: rundir.RunDir) -> dict[str, str]:
    """Returns what ranks the trials of a sweep, and which end of it is the good one."""
    ranking = rundir.Ranking.read(run.readable_sweep.get("ranking"))
    return {} if ranking is None else {METRIC: ranking.metric, DIRECTION: ranking.direction}


def sweep_id(run: rundir.RunDir) -> str:
    """Returns the short id of a sweep, which tells it from others of the same name."""
    return str(run.sweep.get("id") or run.name)[:12]


def search_runs(client: MlflowClient, experiment_ids: list[str], query: str = "") -> Iterator[Run]:
    """Yields all active runs that match, page by page."""
    token: str | None = None
    while True:
        page = client.search_runs(experiment_ids, query, max_results=_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def close_abandoned(client: MlflowClient, *, but: rundir.RunDir) -> list[str]:
    """Marks as KILLED what a killed driver left RUNNING, and returns the run directories concerned.

    Args:
      client: A client of the store.
      but: The run directory that this process records.
    """
    experiments = [experiment.experiment_id for experiment in _experiments_of_sweeps(client)]
    if not experiments:
        return []
    running = list(search_runs(client, experiments, "attributes.status = 'RUNNING'"))
    folders = {run.info.run_id: run.data.tags[RUN_DIR] for run in running if RUN_DIR in run.data.tags}
    own = str(but.path.absolute())
    dead = {run_id for run_id, folder in folders.items() if folder != own and not _has_driver(folder)}
    for run in running:
        if run.info.run_id in dead or run.data.tags.get(PARENT) in dead:
            client.set_terminated(run.info.run_id, "KILLED")
    return sorted({folders[run_id] for run_id in dead})


def _experiments_of_sweeps(client: MlflowClient) -> Iterator[Any]:
    token: str | None = None
    while True:
        page = client.search_experiments(max_results=_PAGE, page_token=token)
        yield from (experiment for experiment in page if SWEEP in experiment.tags)
        token = page.token
        if not token:
            return


def _has_driver(folder: str) -> bool:
    return rundir.Lease.is_live(Path(folder) / ".lock")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())
