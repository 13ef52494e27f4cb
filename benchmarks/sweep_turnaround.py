"""What a further short trial costs beyond its own training, on warm workers and on fresh ones.

    python benchmarks/sweep_turnaround.py [--trials=12] [--peer=PYTHON]

One trial runs at a time, in a Ray of its own. `gap` is the time from the end of a trial to the beginning of the next,
`trial` the time between beginning and end, compilation and a checkpoint included. Warm trials of the same structure
differ in learning rate, those of other structure in the width of the model. Fresh: Ray Tune as it comes, a new actor
for each trial, by `ray_cluster.tune.trainable`. With `--peer`, the Python of an environment with Kauldron 1.4.2: its
trainer in a for loop over learning rates, in one process that has imported everything, on data of the same size, saving
nothing.

Target on two quiet cores: a gap under 0.3 s on warm workers.
"""

# No `annotations` from `__future__`: the other library reads those of the model below.
import argparse
import importlib
import itertools
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS = 50


def config() -> Any:
    """Returns a small experiment without evaluations."""
    from pipelines.configs import digits

    cfg = digits.get_config()
    cfg.num_train_steps = STEPS
    cfg.checkpointer.save_interval_steps = STEPS
    cfg.model.hidden = 16
    cfg.evals = {}
    return cfg


def times(run_dir: str) -> tuple[list[float], list[float]]:
    """Returns the gaps between trials and their own times, in seconds."""
    from kauldron_core import rundir

    statuses = [rundir.read_status(trial) for trial in rundir.RunDir(run_dir).trials()]
    spans = sorted((status["began_ms"] / 1000, status["ended_ms"] / 1000) for status in statuses)
    gaps = [after[0] - before[1] for before, after in itertools.pairwise(spans)]
    return gaps, [end - begin for begin, end in spans]


def warm(root: Path, name: str, axes: dict[str, list[Any]]) -> None:
    """Measures one sweep on warm workers."""
    import pipelines

    sweep = pipelines.Sweep(name=name, root=str(root), max_concurrent=1, pack="off")
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


def peer(python: str, number: int) -> None:
    """Measures the other library in a for loop."""
    command = [python, __file__, f"--trials={number}", "--as-peer"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "NPROC": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(f"{'Kauldron in a for loop':<22} does not run: {(done.stderr.strip() or 'no word').splitlines()[-1]}")
        return
    own = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{'Kauldron in a for loop':<22} {number:3d} trials: trial {statistics.median(own[1:]):.3f} s"
        f" (first {own[0]:.3f})",
        flush=True,
    )


def peer_seconds(number: int) -> list[float]:
    """Returns the seconds of each trial of the other library, in this process, which is of its environment."""
    import flax.linen as nn
    import jax
    import numpy as np
    import optax

    # Not of our own environment.
    kd, Key = importlib.import_module("kauldron.kd"), importlib.import_module("kauldron.kontext").Key

    class Model(nn.Module):
        image: Key = "batch.image"

        @nn.compact
        def __call__(self, image: Any) -> Any:
            return nn.Dense(10)(nn.relu(nn.Dense(16)(image.reshape(image.shape[0], -1))))

    def load() -> dict[str, Any]:
        generator = np.random.default_rng(0)
        images = generator.normal(size=(1437, 8, 8)).astype(np.float32)
        return {"image": images, "label": generator.integers(0, 10, (1437, 1)).astype(np.int32)}

    seconds = []
    for index in range(number):
        began = time.perf_counter()
        trainer = kd.train.Trainer(
            seed=0,
            workdir="/nonexistent",
            train_ds=kd.data.InMemoryPipeline(loader=load, batch_size=128, shuffle=True),
            model=Model(),
            num_train_steps=STEPS,
            train_losses={
                "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds", labels="batch.label"),
            },
            optimizer=optax.adam(1e-3 * (1 + index)),
        )
        state = trainer.init_state()
        for _, batch in zip(range(STEPS), trainer.train_ds, strict=False):
            state, _ = trainer.trainstep.step(state=state, batch=batch)
        jax.block_until_ready(state)
        seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    """Prints a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--peer", help="Python of an environment with Kauldron 1.4.2")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    number = arguments.trials
    if arguments.as_peer:
        print(json.dumps(peer_seconds(number)))
        return
    from kauldron_core import konfig

    konfig.trust("pipelines")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rates = [1e-3 * (1 + index) for index in range(number)]
        warm(root, "warm, same structure", {"optimizer.learning_rate": rates})
        warm(root, "warm, other structure", {"model.hidden": [8 + index for index in range(number)]})
        fresh(root, max(2, number // 4))
    if arguments.peer:
        peer(arguments.peer, number)
    else:
        print("Kauldron in a for loop: give --peer=PYTHON, of an environment that has it")


if __name__ == "__main__":
    main()
