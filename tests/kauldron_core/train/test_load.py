"""From the folder of a trial back to its trainer and its states."""

from __future__ import annotations

import os
import pathlib
import shutil
import threading
import time
from typing import Any

import jax
import numpy as np
import pytest

from kauldron_core import kd, konfig, rundir
from kauldron_core.errors import ConfigError, RunFailed
from kauldron_core.evals import StandaloneEveryCheckpoint, StandaloneLastCheckpoint
from kauldron_core.train import best_checkpoint
from tests.kauldron_core import experiments


def _config() -> Any:
    with konfig.imports():
        import optax

        from kauldron_core import kd
        from tests.kauldron_core import experiments

    return kd.train.Trainer(
        train_ds=kd.data.InMemoryPipeline(loader=experiments.load_points, batch_size=16, shuffle=True),
        eval_ds=kd.data.InMemoryPipeline(loader=experiments.load_points, batch_size=16),
        model=kd.nn.MLP(hidden=8, features=3, x="batch.x"),
        num_train_steps=12,
        train_losses={"xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds", labels="batch.label")},
        train_metrics={"accuracy": kd.metrics.Accuracy(logits="preds", labels="batch.label")},
        optimizer=optax.adam(1e-2),
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=4),
        evals={
            "inline": kd.evals.Evaluator(run=kd.evals.EveryNSteps(4)),
            "beside": kd.evals.Evaluator(run=kd.evals.StandaloneEveryCheckpoint()),
            "last": kd.evals.Evaluator(run=kd.evals.StandaloneLastCheckpoint()),
        },
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> rundir.TrialDir:
    """A trial of a run, trained to its end."""
    run = rundir.RunDir.create(
        tmp_path_factory.mktemp("runs") / "run", {"metric": "inline/losses/total", "mode": "min"}
    )
    trial = run.trial("0000").create(konfig.to_json(_config()))
    kd.load_trial(trial.path).train()
    return trial


def test_a_trial_comes_back_with_its_folder_as_workdir(trained: rundir.TrialDir) -> None:
    trainer = kd.load_trial(trained.path)
    assert pathlib.Path(trainer.workdir) == trained.path
    assert trainer.num_train_steps == 12
    assert "workdir" not in konfig.load(trained.config_path) or konfig.load(trained.config_path).workdir is None


@pytest.mark.parametrize(("step", "expected"), [("latest", 12), (8, 8), (4, 4)])
def test_a_run_comes_back_in_one_line(trained: rundir.TrialDir, step: Any, expected: int) -> None:
    trainer, state = kd.load_run(trained.path, step=step)
    assert int(state.step) == expected
    assert trainer.evals["inline"].evaluate(state).step == expected


def _losses(trial: rundir.TrialDir) -> dict[int, float]:
    events = [event for event in rundir.read_events(trial.events) if event["kind"] == "evaluated"]
    return {event["step"]: event["values"]["losses/total"] for event in events if event["step"] > 0}


def test_a_relative_path_is_as_good(trained: rundir.TrialDir) -> None:
    _, state = kd.load_run(os.path.relpath(trained.path))
    assert state.step == 12


def test_best_is_by_the_metric_of_the_sweep_unless_another_is_named(trained: rundir.TrialDir) -> None:
    losses = _losses(trained)
    best = min(losses, key=lambda step: losses[step])
    worst = max(losses, key=lambda step: losses[step])
    assert int(kd.load_run(trained.path, step="best")[1].step) == best
    _, state = kd.load_run(trained.path, step="best", metric="inline/losses/xent", mode="max")
    assert int(state.step) == worst


def test_the_direction_of_best_is_that_of_the_metric(trained: rundir.TrialDir, tmp_path: Any) -> None:
    """F01: a loss and a metric that says so are best where they are lowest, with no mode and no sweep."""
    losses = _losses(trained)
    best = min(losses, key=lambda step: losses[step])
    alone = shutil.copytree(trained.path, tmp_path / "alone")
    assert int(kd.load_run(alone, step="best", metric="inline/losses/total")[1].step) == best
    trial = rundir.TrialDir(alone)
    for step, value in ((4, 0.5), (8, 0.25), (12, 0.75)):
        record = {"status": "done", "values": {"metrics/bpc": value}, "better": {"metrics/bpc": "lower"}}
        rundir.write_eval_result(trial, "test", step, record)
    assert int(kd.load_run(alone, step="best", metric="test/metrics/bpc")[1].step) == 8
    found = best_checkpoint(trial, metric="test/metrics/bpc")
    assert str(found.ranking) == "test/metrics/bpc, lower is better"


def test_best_reads_the_results_of_evaluators_and_never_takes_nan(trained: rundir.TrialDir, tmp_path: Any) -> None:
    trial = rundir.TrialDir(shutil.copytree(trained.path, tmp_path / "trial"))
    for step, value in ((4, 0.5), (8, 0.25), (12, float("nan"))):
        rundir.write_eval_result(trial, "test", step, {"status": "done", "values": {"metrics/accuracy": value}})
    with pytest.raises(ConfigError, match=r"^mode: unset, and nothing says whether more or less of 'test/metrics/acc"):
        kd.load_run(trial.path, step="best", metric="test/metrics/accuracy")
    assert int(kd.load_run(trial.path, step="best", metric="test/metrics/accuracy", mode="max")[1].step) == 4
    assert int(kd.load_run(trial.path, step="best", metric="test/metrics/accuracy", mode="min")[1].step) == 8


def test_best_without_a_metric_lists_what_there_is(trained: rundir.TrialDir, tmp_path: Any) -> None:
    alone = shutil.copytree(trained.path, tmp_path / "alone")
    with pytest.raises(ConfigError, match=r"metric: unset, and neither the sweep.*inline/losses/total"):
        kd.load_run(alone, step="best")
    with pytest.raises(ConfigError, match=r"unknown metric 'inline/metrics/acuracy'. Did you mean 'inline/metrics/acc"):
        kd.load_run(alone, step="best", metric="inline/metrics/acuracy")


def test_a_run_with_one_trial_is_that_trial(trained: rundir.TrialDir, tmp_path: pathlib.Path) -> None:
    """F39: its folder will do; where there are several, they are listed."""
    run = rundir.RunDir.create(tmp_path / "run")
    shutil.copytree(trained.path, run.trials_path / "0000-a=1")
    trainer, state = kd.load_run(run.path)
    assert (trainer.workdir, int(state.step)) == (str(run.trials_path / "0000-a=1"), 12)
    shutil.copytree(trained.path, run.trials_path / "0001-a=2")
    with pytest.raises(ConfigError, match=r"this run has 2 trials\. Say which one: .*0000-a=1, .*0001-a=2\."):
        kd.load_run(run.path)
    assert int(kd.load_run(run.trials_path / "1", step=8)[1].step) == 8


def test_what_is_not_a_trial_is_refused(trained: rundir.TrialDir, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match="not the folder of a trial"):
        kd.load_trial(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint at step 5. Available: 4, 8, 12"):
        kd.load_run(trained.path, step=5)


def test_continuous_eval_follows_a_run_to_its_end(tmp_path: pathlib.Path) -> None:
    evals = {
        "beside": kd.evals.Evaluator(run=StandaloneEveryCheckpoint()),
        "last": kd.evals.Evaluator(run=StandaloneLastCheckpoint()),
    }
    keeper = kd.ckpts.Checkpointer(save_interval_steps=4, max_to_keep=1)
    trainer = experiments.trainer(tmp_path, evals=evals, checkpointer=keeper)
    found: dict[str, Any] = {}
    beside = threading.Thread(target=lambda: found.update(trainer.continuous_eval(poll_s=0.02)))
    beside.start()
    while not rundir.Lease.is_live(rundir.watch_path(tmp_path, "beside")):
        time.sleep(0.01)
    state = experiments.trainer(tmp_path, evals=evals, checkpointer=keeper).train()
    beside.join(60)
    assert set(found) == {"beside", "last"}
    expected = trainer.evals["beside"].evaluate(jax.device_get(state))
    assert found["beside"].scalars() == found["last"].scalars() == expected.values
    records = rundir.read_eval_results(tmp_path)
    assert list(records) == [("beside", 4), ("beside", 8), ("beside", 12), ("last", 12)]
    assert {record["status"] for record in records.values()} == {"done"}
    assert records["last", 12]["values"] == expected.values
    assert trainer.continuous_eval() == {}, "each once"
    assert rundir.awaited_steps(tmp_path, [4, 8]) == {}, "it keeps nothing any more"


def test_continuous_eval_leaves_out_what_was_saved_too_soon_and_goes_on_after_a_bad_one(tmp_path: pathlib.Path) -> None:
    run = StandaloneEveryCheckpoint(min_interval_s=3600)
    evals = {"spaced": kd.evals.Evaluator(run=run), "all": kd.evals.Evaluator(run=StandaloneEveryCheckpoint())}
    trainer = experiments.trainer(tmp_path, evals=evals)
    trainer.train()
    for path in (tmp_path / "checkpoints" / "ckpt_8" / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    assert set(trainer.continuous_eval()) == {"spaced", "all"}
    statuses = {key: record["status"] for key, record in rundir.read_eval_results(tmp_path).items()}
    assert statuses == {
        ("spaced", 4): "done",
        ("spaced", 12): "done",
        ("all", 4): "done",
        ("all", 8): "failed",
        ("all", 12): "done",
    }
    with pytest.raises(ConfigError, match=r"evals\.spaced\.run: StandaloneEveryCheckpoint .* checkpointer is None"):
        experiments.trainer(evals=evals, checkpointer=None)


def test_continuous_eval_does_not_wait_for_ever(tmp_path: pathlib.Path) -> None:
    trainer = experiments.trainer(tmp_path, evals={"a": kd.evals.Evaluator(run=StandaloneEveryCheckpoint())})
    with pytest.raises(RunFailed, match=r"no new checkpoint for 0\.05 s"):
        trainer.continuous_eval(poll_s=0.01, patience_s=0.05)
    with pytest.raises(ConfigError, match=r"unknown evaluator 'b'. Available: a"):
        trainer.continuous_eval("b")
    with pytest.raises(ConfigError, match="workdir: unset"):
        experiments.trainer().continuous_eval()


def test_the_arrays_of_a_loaded_state_are_those_that_were_saved(trained: rundir.TrialDir) -> None:
    _, first = kd.load_run(trained.path, step=4)
    _, second = kd.load_run(trained.path, step=4)
    for left, right in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(left, right)


def test_what_was_trained_on_eight_devices_is_looked_at_on_one(
    trained: rundir.TrialDir, tmp_path: pathlib.Path
) -> None:
    moved = tmp_path / "0000"
    shutil.copytree(trained.path, moved)
    cfg = konfig.load(moved / "config.json")
    with konfig.imports():
        from kauldron_core import kd as proxy
    mesh = proxy.sharding.MeshSpec(axes=("data", "model"), ici_shape=(2, 4))
    cfg.sharding = proxy.sharding.ShardingStrategy(mesh=mesh, params=proxy.sharding.FSDPSharding(axis="model"))
    konfig.save(cfg, moved / "config.json")
    trainer, state = kd.load_run(moved)
    assert int(state.step) == 12 and trainer.sharding.mesh.ici_shape == (-1, 1)
    # To train it is another matter: it was meant for eight.
    with pytest.raises(ConfigError, match="needs 8 devices"):
        kd.load_trial(moved).train()
