"""How fast the recorder writes a run directory into a new SQLite store, beside MLflow's own calls.

    python benchmarks/recorder.py

Prints points a second: the recorder (files read, parameters and statuses written too), `log_batch` in full batches, and
`log_metric` one by one; then a restart, which reads everything and writes nothing.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kauldron_core import rundir
from pipelines.tracking import Recorder, Store

TRIALS, STEPS, METRICS = 20, 200, 5
POINTS = TRIALS * STEPS * METRICS
CONFIG = json.dumps({"optimizer": {"learning_rate": 0.1}, "model": {"hidden": 32}})


def main() -> None:
    """Prints the figures."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.at(folder, environ={})
        print(f"new store: {seconds(store.open):.1f} s")
        run = make_run(Path(folder) / "run")
        recorder = seconds(lambda: record(store, run))
        batches = seconds(lambda: log_batches(store))
        single = seconds(lambda: log_singly(store, 500)) * POINTS / 500
        restart = seconds(lambda: record(store, run))
    print(f"recorder:   {POINTS / recorder:8.0f} points/s, {recorder / batches:.2f} of the time of bare log_batch")
    print(f"log_batch:  {POINTS / batches:8.0f} points/s")
    print(f"log_metric: {POINTS / single:8.0f} points/s, {single / recorder:.1f} times the time of the recorder")
    print(f"restart:    {POINTS / restart:8.0f} points/s read")


def pair() -> tuple[float, float]:
    """Returns the seconds of the recorder and of bare `log_batch` for as many points, in a new store."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.at(folder, environ={})
        store.open()
        run = make_run(Path(folder) / "run")
        return seconds(lambda: record(store, run)), seconds(lambda: log_batches(store))


def seconds(work: Callable[[], object]) -> float:
    """Returns how long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def make_run(path: Path) -> rundir.RunDir:
    """Returns a run directory whose trials are done."""
    run = rundir.RunDir.create(path, {"id": "benchmark"})
    for number in range(TRIALS):
        trial = run.trial(f"{number:04d}").create(CONFIG)
        with rundir.EventWriter(trial.events) as writer:
            for step in range(1, STEPS + 1):
                values = {f"metrics/m{name}": step / (name + 1) for name in range(METRICS)}
                writer.append("metrics", step, split="train", values=values)
        rundir.write_status(trial, "done")
    return run


def record(store: Store, run: rundir.RunDir) -> None:
    """Writes the run directory with a new recorder."""
    recorder = Recorder(store)
    recorder.start(run)
    recorder.close()


def log_batches(store: Store) -> None:
    """Writes as many points with MLflow's own batches."""
    from mlflow.entities import Metric

    client = store.open()
    experiment = client.create_experiment("batches")
    for _ in range(TRIALS):
        run_id = client.create_run(experiment).info.run_id
        points = [Metric(f"m{name}", step, step, step) for step in range(STEPS) for name in range(METRICS)]
        client.log_batch(run_id, metrics=points)
        client.set_terminated(run_id)


def log_singly(store: Store, count: int) -> None:
    """Writes `count` points, a call each."""
    client = store.open()
    run_id = client.create_run(client.create_experiment("singly")).info.run_id
    for step in range(count):
        client.log_metric(run_id, "m", float(step), step=step)


if __name__ == "__main__":
    main()
