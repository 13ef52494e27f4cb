"""One real SQLite store for all tests here (making one takes seconds), and run directories to record."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kauldron_core import rundir
from pipelines.tracking import Recorder, Store
from pipelines.tracking.experiment import search_runs

_numbers = itertools.count()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store.at(tmp_path_factory.mktemp("runs"), environ={})
    store.open()
    return store


@pytest.fixture
def client(store: Store) -> Any:
    return store.open()


class Run:
    """A run directory as a driver and its trials would write it, and its records."""

    def __init__(self, path: Path, store: Store, client: Any) -> None:
        self.dir = rundir.RunDir(path)
        self.store = store
        self.client = client
        self.warnings: list[str] = []

    def add_trial(self, name: str, config_json: str) -> rundir.TrialDir:
        trial = self.dir.trial(name).create(config_json)
        rundir.write_status(trial, "running")
        return trial

    def log(self, trial: rundir.TrialDir, steps: Iterator[int] | range, **values: Any) -> None:
        with rundir.EventWriter(trial.events) as writer:
            for step in steps:
                writer.append("metrics", step, split="train", values=values or {"losses/total": 1 / (step + 1)})

    def evaluate(self, trial: rundir.TrialDir, step: int, *, again: bool = False, **values: float) -> None:
        record = {"status": "done", "fingerprint": "f", "values": values, "num_examples": 360, "seconds": 0.1}
        finished_ms = 1000 + next(_numbers)
        rundir.write_eval_result(trial, "test", step, {**record, "finished_ms": finished_ms}, again=again)

    def recorder(self, **options: Any) -> Recorder:
        recorder = Recorder(options.pop("store", self.store), warn=self.warnings.append, **options)
        recorder.start(self.dir)
        return recorder

    def record(self, results: object = None) -> None:
        self.recorder().close(results)

    def runs(self) -> dict[str, Any]:
        """Returns the runs of this sweep by name."""
        found = self.client.search_experiments(filter_string=f"name LIKE '{self.dir.name}-%'")
        return {str(run.info.run_name): run for run in search_runs(self.client, [e.experiment_id for e in found])}

    def curve(self, trial: str, key: str) -> list[tuple[int, float]]:
        """Returns steps and values as MLflow has them, in the order of the steps."""
        history = self.client.get_metric_history(self.runs()[trial].info.run_id, key)
        return sorted((metric.step, metric.value) for metric in history)


@pytest.fixture
def make_run(store: Store, client: Any, tmp_path: Path) -> Callable[..., Run]:
    def make(trials: Mapping[str, Mapping[str, Any]] | None = None, *, store: Store = store) -> Run:
        name = f"run{next(_numbers)}"
        listed = [
            {"name": trial, "overrides": list(map(list, pairs.items()))} for trial, pairs in (trials or {}).items()
        ]
        rundir.RunDir.create(tmp_path / name, {"id": f"{next(_numbers):08x}", "command": "kdr sweep", "trials": listed})
        return Run(tmp_path / name, store, client)

    return make
