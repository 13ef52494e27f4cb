"""Handwritten digits: an MLP on the 1,797 real 8x8 images that come with scikit-learn.

    kdr sweep pipelines/configs/digits.py --sweep.optimizer.learning_rate='[1e-3, 1e-2]' \\
        --sweep.model.hidden='[32, 128]'

Expected: four trials in half a minute to a minute on two cores, a third of it training. The best, hidden 128, reaches a
test accuracy of 0.97 to 0.99 (`test/metrics/accuracy`); chance is 0.10.

The 360 test images are a stratified random fifth. The last fifth of the file is by other writers, and stays near 0.92.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kauldron_core import konfig

with konfig.imports():
    import optax

    from kauldron_core import kd

NUM_TEST = 360


def load_train() -> dict[str, np.ndarray]:
    """Returns the 1,437 training images in [0, 1], `float32[n, 8, 8]`, and their labels, `int32[n]`."""
    return _load()["train"]


def load_test() -> dict[str, np.ndarray]:
    """Returns the 360 test images and their labels."""
    return _load()["test"]


@functools.cache
def _load() -> dict[str, dict[str, np.ndarray]]:
    from sklearn.datasets import load_digits  # 1 s: not for who only reads the config
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    images = (np.asarray(pixels).reshape(-1, 8, 8) / 16).astype(np.float32)
    parts = train_test_split(images, np.asarray(labels, np.int32), test_size=NUM_TEST, stratify=labels, random_state=0)
    train_images, test_images, train_labels, test_labels = map(np.asarray, parts)
    return {
        "train": {"image": train_images, "label": train_labels},
        "test": {"image": test_images, "label": test_labels},
    }


def get_config() -> Any:
    """Returns the experiment."""
    return kd.train.Trainer(
        seed=0,
        num_train_steps=500,
        log_metrics_every=20,
        train_ds=kd.data.InMemoryPipeline(loader=load_train, batch_size=128, shuffle=True),
        model=kd.nn.MLP(hidden=64, features=10, x="batch.image"),
        train_losses={
            "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds", labels="batch.label"),
        },
        train_metrics={"accuracy": kd.metrics.Accuracy(logits="preds", labels="batch.label")},
        optimizer=optax.adam(learning_rate=1e-3),
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=100),
        evals={
            # 100 does not divide 360: the last batch is padded, and each image counts once all the same.
            "test": kd.evals.Evaluator(
                run=kd.evals.StandaloneEveryCheckpoint(),
                ds=kd.data.InMemoryPipeline(loader=load_test, batch_size=100, shuffle=False),
            ),
        },
    )
