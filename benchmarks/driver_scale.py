"""Many trivial trials through one driver: its memory, and what each trial costs, as their number grows.

    python benchmarks/driver_scale.py [--trials=200,1000,2000]

A trial makes one step, saves nothing and is not evaluated: what is measured is the driver, Tune and the run directory.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

import pipelines
from kauldron_core import konfig, rundir
from kauldron_core.errors import RunFailed
from pipelines.configs import digits


class Memory:
    """A sidecar that notes the driver's memory and how far the sweep is."""

    def __init__(self) -> None:
        self.points: list[tuple[float, int, float]] = []
        self._process = psutil.Process()
        self._began = time.monotonic()

    def start(self, run_dir: rundir.RunDir) -> None:
        self._run = run_dir

    def poll(self) -> None:
        ended = sum(trial.status() in rundir.TERMINAL for trial in self._run.trials())
        self.points.append((time.monotonic() - self._began, ended, self._process.memory_info().rss / 1e6))

    def close(self, results: object) -> None:
        self.poll()


def config() -> Any:
    """Returns an experiment of one step."""
    cfg = digits.get_config()
    cfg.num_train_steps = cfg.log_metrics_every = 1
    cfg.checkpointer = None
    cfg.model.hidden = 4
    cfg.evals = {}
    return cfg


def measure(number: int) -> None:
    """Prints a line for one sweep."""
    memory = Memory()
    with tempfile.TemporaryDirectory() as root:
        sweep = pipelines.Sweep(name="scale", root=root, pack="off")
        began = time.monotonic()
        results = sweep.run(config(), {"seed": range(number)}, tracking=False, sidecars=[memory])
        seconds = time.monotonic() - began
        num_bytes = sum(path.stat().st_size for path in Path(results.run_dir).rglob("*") if path.is_file())
    begun = next((point for point in memory.points if point[1]), memory.points[-1])
    middle = next((point for point in memory.points if point[1] >= number // 2), memory.points[-1])
    last = next((point for point in memory.points if point[1] == number), memory.points[-1])
    halves = [
        (middle[0] - begun[0]) / max(1, middle[1] - begun[1]),
        (last[0] - middle[0]) / max(1, last[1] - middle[1]),
    ]
    if not results.ok:
        raise RunFailed("a trial failed")
    print(
        f"{number:5d} trials: {seconds:.0f} s; a trial {halves[0]:.3f} s in the first half, {halves[1]:.3f} s in the"
        f" second; driver {begun[2]:.0f} MB at the first, {middle[2]:.0f} MB in the middle, {last[2]:.0f} MB at the"
        f" end; {num_bytes / number / 1000:.1f} kB on disk a trial",
        flush=True,
    )


def main() -> None:
    """Measures each number of trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", default="200,1000,2000")
    for number in parser.parse_args().trials.split(","):
        measure(int(number))


if __name__ == "__main__":
    konfig.trust("pipelines")
    main()
