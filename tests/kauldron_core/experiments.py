"""Tiny experiments that the tests of training, evaluation and checkpoints share."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax

from kauldron_core import kd

NUM_EXAMPLES = 70
FEATURES = 4
CLASSES = 3


def load_points() -> dict[str, np.ndarray]:
    """Returns points that a linear model separates."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_EXAMPLES, FEATURES)).astype(np.float32)
    return {"x": x, "label": (x @ generator.normal(size=(FEATURES, CLASSES))).argmax(-1).astype(np.int32)}


def points(**fields: Any) -> kd.data.InMemoryPipeline:
    """Returns a pipeline over `load_points`."""
    return kd.data.InMemoryPipeline(**{"loader": load_points, "batch_size": 16, **fields})


def losses() -> dict[str, Any]:
    return {"xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds", labels="batch.label")}


def metrics() -> dict[str, Any]:
    return {"accuracy": kd.metrics.Accuracy(logits="preds", labels="batch.label")}


def trainer(workdir: Any = None, **fields: Any) -> kd.train.Trainer:
    """Returns an experiment of 12 steps that exercises dropout and shuffling."""
    defaults: dict[str, Any] = {
        "seed": 0,
        "workdir": workdir,
        "train_ds": points(shuffle=True),
        "eval_ds": points(),
        "model": kd.nn.MLP(hidden=8, features=CLASSES, dropout=0.2, x="batch.x"),
        "num_train_steps": 12,
        "log_metrics_every": 4,
        "train_losses": losses(),
        "train_metrics": metrics(),
        "optimizer": optax.adam(1e-2),
        "checkpointer": kd.ckpts.Checkpointer(save_interval_steps=4),
    }
    return kd.train.Trainer(**{**defaults, **fields})


def of_kind(events: Any, kind: type) -> list[Any]:
    """Returns the events of one kind."""
    return [event for event in events if isinstance(event, kind)]
