"""The evaluated accuracy is the one that NumPy gets over the whole test split, whatever the batch size."""

from __future__ import annotations

import numpy as np
import pytest

import evaluators
from kauldron_core import kd, rundir
from pipelines.cli import main
from pipelines.configs import digits

pytestmark = pytest.mark.slow

BATCH_SIZES = (1, 7, 64, 100, 359, 360, 500)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> rundir.TrialDir:
    root = tmp_path_factory.mktemp("runs")
    words = ["--cfg.num_train_steps=60", f"--run.root={root}", "--run.name=one", "--no-tracking"]
    assert main(["train", "pipelines/configs/digits.py", *words]) == 0
    return rundir.RunDir(root / "one").trials()[0]


@pytest.fixture(scope="module")
def num_correct(trial: rundir.TrialDir) -> int:
    """The number of right predictions, counted with NumPy alone."""
    _, state = kd.load_run(trial.path)
    first, second = (
        {name: np.asarray(value, np.float64) for name, value in state.params[layer].items()}
        for layer in ("Dense_0", "Dense_1")
    )
    test = digits.load_test()
    hidden = np.maximum(test["image"].reshape(360, 64) @ first["kernel"] + first["bias"], 0)
    return int(np.sum(np.argmax(hidden @ second["kernel"] + second["bias"], axis=1) == test["label"]))


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_every_image_counts_once(trial: rundir.TrialDir, num_correct: int, batch_size: int) -> None:
    (record,) = evaluators.evaluate_run(
        trial.path,
        names=["test"],
        as_name=f"test-{batch_size}",
        overrides=[f"evals.test.ds.batch_size={batch_size}"],
    )
    assert 0 < num_correct < 360
    assert record["num_examples"] == 360
    assert record["values"]["metrics/accuracy"] == num_correct / 360
