"""What an evaluation costs over a hand-written jitted forward loop: three models, in one run, pair by pair.

    python benchmarks/eval_throughput.py [--models=mlp,convnet,mlp_in_memory] [--rounds=15] [--examples=16401]
        [--actors=1,2]

Both walk over the batches of the same pipeline, padded and masked, and give the mean cross entropy and the accuracy.
Prints examples a second of the evaluator relative to the loop (1 is as fast): median and quartiles of the ratios of
pairs that ran right after each other, by the clock, and the median by processor time, which other work on the machine
disturbs less. `mlp_in_memory` takes the data's own cost away: its batches lie ready in a list.

Then the checkpoints of one run are evaluated on so many evaluator actors, with one core each: evaluations a second from
the moment on when each of them has made its first.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("NPROC", "1")

import jax
import jax.numpy as jnp
import numpy as np
import optax

import evaluators
from kauldron_core import kd, konfig, rundir
from kauldron_core.forward import TrainState
from ray_cluster.evaluations import eval_jobs

BATCH_SIZE, CLASSES = 128, 10


class Case(NamedTuple):
    """A model with the shape of an example, and whether its batches lie ready."""

    model: Any
    shape: tuple[int, ...]
    in_memory: bool = False


CASES = {
    "mlp": Case(kd.nn.MLP(hidden=128, features=CLASSES, x="batch.x"), (64,)),
    "mlp_in_memory": Case(kd.nn.MLP(hidden=128, features=CLASSES, x="batch.x"), (64,), in_memory=True),
    "convnet": Case(kd.nn.ConvNet(features=(16, 32), num_classes=CLASSES, image="batch.x"), (28, 28, 1)),
}


class Seconds(NamedTuple):
    """How long something took, by the clock and in all threads of the process."""

    wall: float
    cpu: float


def seconds(run: Callable[[], Any]) -> Seconds:
    """Returns how long `run` takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def examples(shape: tuple[int, ...], count: int) -> dict[str, np.ndarray]:
    """Returns random examples."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, *shape)).astype(np.float32)
    return {"x": x, "label": rng.integers(0, CLASSES, count, dtype=np.int32)}


def evaluator(case: Case, ds: Any) -> kd.evals.Evaluator:
    """Returns the evaluator as a config would build it."""
    keys: dict[str, Any] = {"logits": "preds", "labels": "batch.label"}
    return kd.evals.Evaluator(
        run=kd.evals.Final(),
        ds=ds,
        model=case.model,
        losses={"xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(**keys)},
        metrics={"accuracy": kd.metrics.Accuracy(**keys)},
    )


def by_hand(model: Any, params: Any, ds: Any) -> Callable[[], tuple[float, float]]:
    """Returns a function that evaluates as one writes it by hand: sums stay on the device until the end."""

    @jax.jit
    def step(params: Any, batch: Any) -> jax.Array:
        logits, mask = model.apply({"params": params}, batch["x"]), batch["padding_mask"]
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        hits = logits.argmax(-1) == batch["label"]
        return jnp.stack([(losses * mask).sum(), (hits & mask).sum().astype(jnp.float32), mask.sum()])

    def run() -> tuple[float, float]:
        sums = np.sum(jax.device_get([step(params, batch) for batch in ds]), axis=0)
        return float(sums[0] / sums[2]), float(sums[1] / sums[2])

    return run


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--examples", type=int, default=16_384 + 17)
    parser.add_argument("--actors", default="1,2")
    args = parser.parse_args()
    print(f"{args.examples} examples, batches of {BATCH_SIZE}, {args.rounds} pairs; 1 is as fast as the loop")
    for name in filter(None, args.models.split(",")):
        measure(name, args.rounds, args.examples)
    if args.actors:
        measure_actors([int(number) for number in args.actors.split(",")])


def pairs_of(name: str, rounds: int, count: int) -> list[tuple[Seconds, Seconds]]:
    """Returns the times of the loop by hand and of the evaluator, on the same data right after each other."""
    case = CASES[name]
    data = examples(case.shape, count)
    ds: Any = kd.data.InMemoryPipeline(loader=lambda: data, batch_size=BATCH_SIZE).for_eval()
    ds = list(ds) if case.in_memory else ds
    params = case.model.init(jax.random.key(0), data["x"][:1])["params"]
    state = TrainState.create(params=params, collections={}, opt_state=())
    ours, hand = functools.partial(evaluator(case, ds).evaluate, state), by_hand(case.model, params, ds)
    values, expected = ours().values, hand()
    np.testing.assert_allclose([values["losses/xent"], values["metrics/accuracy"]], expected, rtol=1e-5)
    return [(seconds(hand), seconds(ours)) for _ in range(rounds)]


def measure(name: str, rounds: int, count: int) -> None:
    """Prints one line for one model."""
    pairs = pairs_of(name, rounds, count)
    wall = sorted(loop.wall / evaluation.wall for loop, evaluation in pairs)
    cpu = statistics.median(loop.cpu / evaluation.cpu for loop, evaluation in pairs)
    low, _, high = statistics.quantiles(wall, n=4)
    speed = count / statistics.median(evaluation.wall for _, evaluation in pairs)
    print(
        f"{name:14} {statistics.median(wall):.2f} ({low:.2f} to {high:.2f}) by the clock, {cpu:.2f} by processor time; "
        f"{speed:,.0f} examples/s"
    )


NUM_CHECKPOINTS = 24


def load_images() -> dict[str, np.ndarray]:
    """Returns the examples that evaluator actors look at: half a second for one core."""
    return examples((28, 28, 1), 8_192)


def config() -> Any:
    """Returns an experiment that saves after each of its steps."""
    # As a module, which the actors import too, and not as this script.
    import eval_throughput

    with konfig.imports():
        import optax as ox

        from kauldron_core import kd as parts

    keys: dict[str, Any] = {"logits": "preds", "labels": "batch.label"}
    ds = parts.data.InMemoryPipeline(loader=eval_throughput.load_images, batch_size=BATCH_SIZE)
    return parts.train.Trainer(
        num_train_steps=NUM_CHECKPOINTS,
        train_ds=ds,
        model=parts.nn.ConvNet(features=(16, 32), num_classes=CLASSES, image="batch.x"),
        train_losses={"xent": parts.losses.SoftmaxCrossEntropyWithIntLabels(**keys)},
        optimizer=ox.sgd(learning_rate=1e-3),
        checkpointer=parts.ckpts.Checkpointer(save_interval_steps=1),
        evals={"test": parts.evals.Evaluator(run=parts.evals.StandaloneEveryCheckpoint(), ds=ds)},
    )


def measure_actors(numbers: list[int]) -> None:
    """Prints one line for each number of actors."""
    konfig.trust("eval_throughput")
    with tempfile.TemporaryDirectory() as root:
        run = rundir.RunDir.create(pathlib.Path(root) / "run")
        trial = run.trial("0000").create(konfig.to_json(config()))
        kd.load_trial(trial).train()
        for number in numbers:
            job = eval_jobs.EvalJob(
                run_dir=str(run.path),
                num_actors=number,
                trust=konfig.trusted_packages(),
                python_path=(str(pathlib.Path(__file__).parent),),
            )
            times: list[float] = []
            plan = evaluators.plan_run(run, step="all", again=True)
            eval_jobs.evaluate(plan, job, on_record=lambda record, times=times: times.append(time.perf_counter()))
            speed = (NUM_CHECKPOINTS - number) / (times[-1] - times[number - 1])
            print(f"{number} evaluator actors: {speed:.2f} evaluations/s over {NUM_CHECKPOINTS} checkpoints")


if __name__ == "__main__":
    main()
