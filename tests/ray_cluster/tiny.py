"""A tiny experiment that trials of cluster tests run: hidden 8, 30 steps, and ways to go wrong."""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
import pathlib
import resource
import time
from typing import Any

import numpy as np

from kauldron_core import kd, konfig
from kauldron_core.errors import ConfigError
from ray_cluster import EvalPool, Plan, PlannedPack, PlannedTrial, Sweep

NUM_STEPS, SAVE_EVERY, NUM_TEST = 30, 10, 37
STEPS = [10, 20, 30]
LONG_STEPS = list(range(1500, 16_500, 1500))
POOL = EvalPool(evaluators=("test",))


@functools.cache
def load_train() -> dict[str, np.ndarray]:
    return _examples(128, seed=0)


@functools.cache
def load_test() -> dict[str, np.ndarray]:
    return _examples(NUM_TEST, seed=1)


def load_test_and_fill_disk() -> dict[str, np.ndarray]:
    """Returns the test data; the process can write no file from then on, where `FULL_DISK` says so."""
    if os.environ.get("FULL_DISK") and os.nice(0):  # Evaluators alone are niced.
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    return load_test()


def load_nan() -> dict[str, np.ndarray]:
    """Returns training data on which every loss is NaN."""
    return {**load_train(), "x": np.full_like(load_train()["x"], np.nan)}


def load_nothing() -> dict[str, np.ndarray]:
    raise OSError("the disk with the data is not mounted")


def make_nothing() -> Any:
    raise ConfigError("there is no such optimizer")


@dataclasses.dataclass(frozen=True)
class Slow(kd.data.MapTransform):
    """Takes its time over every example, so that a test can act while a trial runs."""

    seconds: float

    def map(self, element: Any) -> Any:
        time.sleep(self.seconds)
        return element


def config(
    *,
    seed: int = 0,
    loader: Any = load_train,
    slow_s: float = 0.0,
    num_steps: int = NUM_STEPS,
    max_to_keep: int | None = None,
) -> Any:
    """Returns the experiment; `slow_s` is the seconds that a batch of 8 takes more."""
    transforms = [node("tests.ray_cluster.tiny:Slow", seconds=slow_s / 8)] if slow_s else []
    return node(
        "train.Trainer",
        seed=seed,
        num_train_steps=num_steps,
        log_metrics_every=5,
        train_ds=node("data.InMemoryPipeline", loader=loader, batch_size=8, shuffle=True, transforms=transforms),
        model=node("nn.MLP", hidden=8, features=3, x="batch.x"),
        train_losses={"xent": node("losses.SoftmaxCrossEntropyWithIntLabels", logits="preds", labels="batch.label")},
        train_metrics={"accuracy": node("metrics.Accuracy", logits="preds", labels="batch.label")},
        optimizer=node("optax:adam", learning_rate=3e-2),
        checkpointer=node("ckpts.Checkpointer", save_interval_steps=SAVE_EVERY, max_to_keep=max_to_keep),
        evals={
            "test": node(
                "evals.Evaluator",
                run=node("evals.StandaloneEveryCheckpoint"),
                ds=node("data.InMemoryPipeline", loader=load_test, batch_size=8, shuffle=False),
            )
        },
    )


def node(name: str, **arguments: Any) -> Any:
    return konfig.ConfigDict({"__qualname__": name if ":" in name else f"kauldron_core.kd:{name}", **arguments})


def long_config(*, seed: int) -> Any:
    """Returns an experiment that takes some seconds, so that a test can act while it runs in a pack."""
    made = config(seed=seed, num_steps=LONG_STEPS[-1])
    made.log_metrics_every = made.checkpointer.save_interval_steps = LONG_STEPS[0]
    return made


def trial(index: int, *, resources: Any = None, **options: Any) -> PlannedTrial:
    """Returns a trial of `config(**options)`."""
    overrides = tuple((key, value) for key, value in options.items() if not callable(value))
    return planned(index, config(**{"seed": index, **options}), overrides=overrides, resources=resources)


def planned(index: int, config: Any, *, overrides: Any = (), resources: Any = None) -> PlannedTrial:
    """Returns a trial of any config."""
    text = konfig.to_json(config, indent=1)
    return PlannedTrial(
        name=f"{index:04d}",
        index=index,
        fingerprint=f"point-{index}",
        config_json=text,
        overrides=overrides,
        resources=resources,
    )


def plan(run_dir: Any, *trials: PlannedTrial, pools: tuple[EvalPool, ...] = (POOL,), **sweep: Any) -> Plan:
    """Returns the plan of a sweep over these trials."""
    return Plan(sweep=Sweep(**sweep), run_dir=str(run_dir), trials=trials, pools=pools, trust=("tests",))


def packed(plan: Plan, *, size: int) -> Plan:
    """Returns the plan with its first trials, which differ in their seeds, in a pack."""
    content = {"pack": kd.packs.Pack(tuple(range(size)), ("seed",)).to_json()}
    pack = PlannedPack(name="abc", trials=tuple(trial.name for trial in plan.trials[:size]), content=content)
    return dataclasses.replace(plan, packs=(pack,))


def _examples(size: int, *, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, size).astype(np.int32)
    x = np.eye(3, 5, dtype=np.float32)[label] + rng.normal(0, 0.5, (size, 5)).astype(np.float32)
    return {"x": x, "label": label}


@dataclasses.dataclass(frozen=True)
class HangOnce(kd.data.MapTransform):
    """Hangs at one example, in the first process that gets there."""

    marker: str
    after: int

    def map(self, element: Any) -> Any:
        path = pathlib.Path(self.marker)
        count = int(path.read_text()) if path.exists() else 0
        path.write_text(str(count + 1))
        if count == self.after:
            time.sleep(1e6)
        return element


@dataclasses.dataclass(frozen=True)
class FullDisk(kd.ckpts.Checkpointer):
    """Meets a full disk at its second save, in the first process that gets there."""

    marker: str = ""

    def save(self, *args: Any, **kwargs: Any) -> Any:
        path = pathlib.Path(self.marker)
        count = int(path.read_text()) if path.exists() else 0
        path.write_text(str(count + 1))
        if count == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.marker)
        return super().save(*args, **kwargs)
