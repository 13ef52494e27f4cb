"""A real run with all that a run can hold: a pack, a trial alone, records, a search, the stages of a pipeline."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import evaluators
from kauldron_core import konfig, rundir, sweeps, train
from kauldron_core.packs.running.division import Division
from pipelines import experiment as experiments
from pipelines import planning
from pipelines.cli.words.command import read_command
from ray_cluster.driver import control, layout
from ray_cluster.spec import PlannedTrial
from ray_cluster.workers import pack_records

DIGITS = "pipelines/configs/digits.py"
PIPELINE = "pipelines/configs/digits_pipeline.py"
STEPS = 4
SHORT = (
    f"--cfg.num_train_steps={STEPS}",
    "--cfg.log_metrics_every=2",
    "--cfg.checkpointer.save_interval_steps=2",
    "--cfg.train_ds.batch_size=16",
    "--cfg.evals.test.num_batches=1",
)
SMALL = ("--cfg.model.hidden=8", *SHORT)


def make(root: Path) -> None:
    """Fills `root` with `demo` (trials 0 and 1 in a pack, 2 alone), `search`, and the pipeline `digits-pipeline`."""
    run = lay_out(root, "demo", "--sweep.optimizer.learning_rate=[1e-3, 1e-2, 3e-2]")
    zero, one, two = run.trials()
    _train_pack(run, [zero.name, one.name])
    train.load_trial(two).train()
    for trial in (zero, one, two):
        fields = {"pack": "one"} if trial is not two else {}
        rundir.write_status(trial, "done", step=STEPS, **fields)
        rundir.make_folder(trial.logs)
        (trial.logs / "stdout.log").write_text("compiling\n")
    evaluators.evaluate_run(run.path, step="latest")
    rundir.write_pending(two, "test", rundir.Pending(due=(STEPS,), seen=STEPS))
    with run.lock():
        control.request_trial_stop(run, zero.name, reason="enough")
    run.write_results([{"trial": trial.name, "train/losses/total": 1.0} for trial in run.trials()])
    _make_search(root)
    _make_pipeline(root)


def lay_out(root: Path, name: str, *words: str, small: Iterable[str] = SMALL) -> rundir.RunDir:
    command = read_command([DIGITS, f"--run.root={root}", f"--run.name={name}", *small, *words])
    prepared = planning.prepare(command, experiments.read_spec(command), command=f"kdr sweep {DIGITS}")
    prepared.write_sources()
    run = layout.lay_out(prepared.plan)
    layout.write_trials(prepared.plan, run)
    return run


def _train_pack(run: rundir.RunDir, names: list[str]) -> None:
    pack = {"members": list(range(len(names))), "arguments": ["optimizer.learning_rate"]}
    folder = run.pack("one")
    folder.write({"trials": names, "pack": pack, "rule": None, "is_tried": True, "is_timed": False})
    for _ in pack_records.records_of(folder, threading.Event()):
        pass
    Division(STEPS, ((0,), (1,))).write(folder)


def _make_search(root: Path) -> None:
    words = ("--run.search=optuna", "--run.metric=train/losses/total", "--run.mode=min", "--run.num_samples=3")
    run = lay_out(root, "search", "--sweep.optimizer=[optax.sgd(0.05), optax.adam(1e-3)]", *words)
    search = planning.resume(run).plan.search
    assert search is not None
    trials: list[PlannedTrial] = [search.make_trial(at, point) for at, point in enumerate(search.space.ends())]
    for trial in trials:
        rundir.write_status(run.trial(trial.name).create(trial.config_json), "queued")
    layout.write_list(run, trials)


def _make_pipeline(root: Path) -> None:
    """Writes what the stages of a pipeline would leave; they would start Ray."""
    stages = sweeps.load_config_file(PIPELINE).config.stages
    name, row = "0000-learning_rate=0.001", {"evaluator": "test", "step": STEPS, "values": {"metrics/accuracy": 0.5}}
    left = {
        "search": {"run": "search"},
        "choose": {"run": "search", "metric": "test/metrics/accuracy", "chosen": [{"trial": name, "value": 0.5}]},
        "longer": {"run": "longer"},
        "evaluate": {"run": "longer", "results": [{"trial": name, **row}]},
        "report": {"run": "longer", "report": "report.md", "best": {"point": "all", "mean": 0.5}},
    }
    folder = rundir.make_folder(root / "digits-pipeline" / "stages")
    for stage, content in left.items():
        identity = konfig.fingerprint(stages[stage])
        rundir.write_json(folder / f"{stage}.json", {"identity": identity, "seconds": 1.0, **content})
