"""A tiny experiment whose numbers can be recomputed by hand: 103 test examples, three classes, one hidden layer."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import numpy as np

from kauldron_core import kd, konfig, rundir

NUM_STEPS, SAVE_EVERY, NUM_TEST = 40, 10, 103
STEPS = [10, 20, 30, 40]


@functools.cache
def load_train() -> dict[str, np.ndarray]:
    return _examples(256, seed=0)


@functools.cache
def load_test() -> dict[str, np.ndarray]:
    return _examples(NUM_TEST, seed=1)


def _examples(size: int, *, seed: int) -> dict[str, np.ndarray]:
    """Three clouds that overlap, so that some answers are wrong."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, size).astype(np.int32)
    centre = np.array([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]], np.float32)
    return {"x": (centre[label] + rng.normal(0, 0.5, (size, 5))).astype(np.float32), "label": label}


def evaluator(run: Any, **fields: Any) -> konfig.ConfigDict:
    """Returns an evaluator over the test split, 8 examples a batch: 12 full ones and one of 7."""
    ds = node("data.InMemoryPipeline", loader=load_test, batch_size=8, shuffle=False)
    return node("evals.Evaluator", run=run, ds=ds, **fields)


def accuracy(**fields: Any) -> konfig.ConfigDict:
    return node("metrics.Accuracy", logits="preds", labels="batch.label", **fields)


def node(name: str, **arguments: Any) -> konfig.ConfigDict:
    return konfig.ConfigDict({"__qualname__": f"kauldron_core.kd:{name}", **arguments})


def config(**evals: konfig.ConfigDict) -> konfig.ConfigDict:
    """Returns the experiment with these evaluators, by default one on every checkpoint."""
    return node(
        "train.Trainer",
        seed=0,
        num_train_steps=NUM_STEPS,
        log_metrics_every=20,
        train_ds=node("data.InMemoryPipeline", loader=load_train, batch_size=32, shuffle=True),
        model=node("nn.MLP", hidden=8, features=3, x="batch.x"),
        train_losses={
            "xent": node("losses.SoftmaxCrossEntropyWithIntLabels", logits="preds", labels="batch.label"),
        },
        train_metrics={"accuracy": accuracy()},
        optimizer=konfig.ConfigDict({"__qualname__": "optax:adam", "learning_rate": 3e-2}),
        checkpointer=node("ckpts.Checkpointer", save_interval_steps=SAVE_EVERY),
        evals=evals or {"test": evaluator(node("evals.StandaloneEveryCheckpoint"))},
    )


def train(folder: pathlib.Path, cfg: konfig.ConfigDict | None = None) -> rundir.TrialDir:
    """Trains the experiment as a trial in `folder`."""
    trial = rundir.TrialDir(folder)
    trial.path.mkdir(parents=True)
    konfig.save(config() if cfg is None else cfg, trial.config_path)
    konfig.trust("tests")
    kd.load_trial(trial).train()
    return trial


def by_hand(trial: rundir.TrialDir, step: int) -> tuple[int, float]:
    """Returns how many test examples the checkpoint gets right, and the mean cross-entropy, with NumPy alone."""
    _, state = kd.load_run(trial, step=step)
    layers = {
        name: {key: np.asarray(value, np.float64) for key, value in layer.items()} for name, layer in _layers(state)
    }
    data = load_test()
    hidden = np.maximum(data["x"] @ layers["Dense_0"]["kernel"] + layers["Dense_0"]["bias"], 0)
    logits = hidden @ layers["Dense_1"]["kernel"] + layers["Dense_1"]["bias"]
    logits -= logits.max(axis=1, keepdims=True)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    losses = -log_probabilities[np.arange(len(logits)), data["label"]]
    return int((logits.argmax(axis=1) == data["label"]).sum()), float(losses.mean())


def _layers(state: Any) -> list[tuple[str, Any]]:
    params = state.params.get("params", state.params)
    return list(params.items())


def damage(trial: rundir.TrialDir, step: int) -> None:
    """Empties the data files of a checkpoint; it stays committed."""
    for path in (trial.checkpoints / f"ckpt_{step}" / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
