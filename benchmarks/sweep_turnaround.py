"""What a further short trial costs beyond its own training, on warm workers and on fresh ones.

    python benchmarks/sweep_turnaround.py [--trials=12]

One trial runs at a time, in a Ray of its own. `gap` is the time from the end of a trial to the beginning of the next,
`trial` the time between beginning and end, compilation included. Warm trials of the same structure differ in learning
rate, those of other structure in the width of the model. Fresh: Ray Tune as it comes, a new actor for each trial, by
`ray_cluster.tune.trainable`.

Target on two quiet cores: a gap under 0.3 s on warm workers.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pipelines
from kauldron_core import konfig, rundir
from pipelines.configs import digits

STEPS = 50


def config() -> Any:
    """Returns a small experiment without evaluations."""
    cfg = digits.get_config()
    cfg.num_train_steps = STEPS
    cfg.checkpointer.save_interval_steps = STEPS
    cfg.model.hidden = 16
    cfg.evals = {}
    return cfg


def times(run_dir: str) -> tuple[list[float], list[float]]:
    """Returns the gaps between trials and their own times, in seconds."""
    statuses = [rundir.read_status(trial) for trial in rundir.RunDir(run_dir).trials()]
    spans = sorted((status["began_ms"] / 1000, status["ended_ms"] / 1000) for status in statuses)
    gaps = [after[0] - before[1] for before, after in itertools.pairwise(spans)]
    return gaps, [end - begin for begin, end in spans]


def warm(root: Path, name: str, axes: dict[str, list[Any]]) -> None:
    """Measures one sweep on warm workers."""
    sweep = pipelines.Sweep(name=name, root=str(root), max_concurrent=1)
    results = sweep.run(config(), axes, tracking=False)
    gaps, own = times(results.run_dir)
    # The first trials compile what the later ones share.
    print(
        f"{name:<22} {len(own):3d} trials: gap {statistics.median(gaps):.3f} s (largest {max(gaps):.3f}),"
        f" trial {statistics.median(own[1:]):.3f} s (first {own[0]:.3f})",
        flush=True,
    )


def fresh(root: Path, number: int) -> None:
    """Measures Tune with a new actor for each trial."""
    import ray
    from ray import tune

    from ray_cluster.tune import trainable

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    began = time.monotonic()
    tuner = tune.Tuner(
        trainable(config(), run_dir=root / "fresh"),
        param_space={"seed": tune.grid_search(list(range(number)))},
        tune_config=tune.TuneConfig(reuse_actors=False),
        run_config=tune.RunConfig(storage_path=str(root / "tune"), verbose=0),
    )
    tuner.fit()
    whole = (time.monotonic() - began) / number
    print(f"{'fresh actors':<22} {number:3d} trials: {whole:.3f} s a trial, all in all", flush=True)
    ray.shutdown()


def main() -> None:
    """Prints a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=12)
    number = parser.parse_args().trials
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rates = [1e-3 * (1 + index) for index in range(number)]
        warm(root, "warm, same structure", {"optimizer.learning_rate": rates})
        warm(root, "warm, other structure", {"model.hidden": [8 + index for index in range(number)]})
        fresh(root, max(2, number // 4))


if __name__ == "__main__":
    konfig.trust("pipelines")
    main()
