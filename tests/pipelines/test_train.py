"""`kdr train` and `kdr eval`, really trained on the digits, small."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kauldron_core import rundir
from pipelines.cli import main

pytestmark = pytest.mark.slow

DIGITS = "pipelines/configs/digits.py"
TINY = ("--cfg.checkpointer.save_interval_steps=10", "--cfg.model.hidden=8")
SMALL = ("--cfg.num_train_steps=20", *TINY)


def train(root: Path, *words: str, steps: int = 20) -> int:
    place = [f"--run.root={root}", "--run.name=one", "--no-tracking"]
    return main(["train", DIGITS, f"--cfg.num_train_steps={steps}", *TINY, *place, *words])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> rundir.RunDir:
    root = tmp_path_factory.mktemp("runs")
    assert train(root) == 0
    return rundir.RunDir(root / "one")


def test_a_run_has_the_layout_of_a_sweep_with_one_trial(trained: rundir.RunDir) -> None:
    (trial,) = trained.trials()
    assert trial.status() == "done"
    assert rundir.list_eval_results(trial) == {("test", 10), ("test", 20)}
    assert rundir.read_table(trained.path / "results.parquet")[0]["test/metrics/accuracy"] > 0
    assert {event["step"] for event in rundir.read_events(trial.events) if event["kind"] == "metrics"} == {1, 20}


def test_max_to_keep_holds_after_the_end_too(tmp_path: Path) -> None:
    """F16: four saves with `max_to_keep=1` wait for the evaluator that runs at the end, and all four stayed."""
    assert train(tmp_path, "--cfg.checkpointer.max_to_keep=1", steps=40) == 0
    (trial,) = rundir.RunDir(tmp_path / "one").trials()
    assert rundir.list_eval_results(trial) == {("test", step) for step in (10, 20, 30, 40)}
    assert rundir.committed_steps(trial.checkpoints) == [40]


def test_the_same_command_again_does_nothing_more(trained: rundir.RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--run.root={trained.path.parent}", "--run.name=one", "--dry-run"]
    assert main(["sweep", DIGITS, *SMALL, *words]) == 0
    assert "stands at   1 done; nothing would run\n" in capsys.readouterr().out
    before = rundir.read_eval_results(trained.trials()[0])
    assert train(trained.path.parent) == 0
    assert rundir.read_eval_results(trained.trials()[0]) == before
    assert len(rundir.list_segments(trained.trials()[0].events)) == 1
    assert "test/metrics/accuracy" in capsys.readouterr().out


def test_another_config_under_the_same_name_is_refused(
    trained: rundir.RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(trained.path.parent, "--cfg.seed=1") == 2
    assert "seed 0 -> 1" in capsys.readouterr().err


def test_more_steps_are_another_run_that_starts_from_the_first(
    trained: rundir.RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(trained.path.parent, steps=30) == 2
    hint = f"More steps make another run: kdr train with another --run.name and --start-from={trained.path}."
    assert hint in capsys.readouterr().err
    assert train(tmp_path, f"--start-from={trained.path}", steps=30) == 0
    (trial,) = rundir.RunDir(tmp_path / "one").trials()
    assert {event["step"] for event in rundir.read_events(trial.events) if event["kind"] == "metrics"} == {30}
    assert rundir.list_eval_results(trial) == {("test", 20), ("test", 30)}
    assert train(tmp_path / "x", f"--start-from={trained.path}x") == 2
    assert "unknown run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--cfg.num_train_steps=20"], "and 20 steps leave nothing to train. To go on: --cfg.num_train_steps=40,"),
        (["--cfg.num_train_steps=10"], "and 10 steps leave nothing to train"),
        (["--cfg.num_train_steps=30", "--cfg.model.hidden=9"], "does not fit the config: "),
        (["--cfg.num_train_steps=30", "--cfg.seed=1"], "was saved with seed="),
    ],
)
def test_a_run_that_can_not_begin_with_a_checkpoint_is_refused_before_it_is_made(
    trained: rundir.RunDir, tmp_path: Path, words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """F10: the same number of steps from a finished run is no success; nor are fewer, other arrays, another order."""
    place = [f"--run.root={tmp_path}", "--run.name=one", "--no-tracking", f"--start-from={trained.path}"]
    same = [word for word in TINY if word.partition("=")[0] not in " ".join(words)]
    assert main(["train", DIGITS, *same, *words, *place]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --start-from=") and expected in line
    assert not (tmp_path / "one").exists()
    if "To go on" in expected:
        loader = shlex.split(line.partition("without --start-from: ")[2])
        assert main(["config", "validate", DIGITS, *TINY, *loader]) == 0


def test_axes_are_for_sweeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", DIGITS, "--sweep.seed=[0, 1]"]) == 2
    assert "kdr sweep" in capsys.readouterr().err


def test_a_run_that_raises_is_a_failure_and_runs_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # What does not fit shows before it starts; this shows while it runs.
    words = ("--cfg.optimizer.learning_rate=inf", "--cfg.checkify_error_categories=['nan']")
    assert train(tmp_path, *words) == 1
    (trial,) = rundir.RunDir(tmp_path / "one").trials()
    assert trial.status() == "failed"
    assert rundir.read_status(trial)["error"]
    assert train(tmp_path, *words) == 1
    assert len(rundir.list_segments(trial.events)) == 2


def test_a_mistake_that_shows_at_the_first_step_leaves_the_name_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mistake = "--cfg.trainstep=kd.train.TrainStep(microbatches=3)"
    assert train(tmp_path, mistake, "--cfg.train_ds.batch_size=32") == 2
    assert capsys.readouterr().err == "error: microbatches: a batch of 32 is no multiple of 3.\n"
    assert not rundir.RunDir(tmp_path / "one").path.exists()


def test_a_diverged_run_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "--cfg.optimizer.learning_rate=inf") == 1
    assert rundir.RunDir(tmp_path / "one").trials()[0].status() == "diverged"


def test_eval_prints_what_the_ledger_holds(trained: rundir.RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(trained.path), "--step=all", "--no-tracking"]) == 0
    out = capsys.readouterr().out
    accuracy = rundir.read_eval_results(trained.trials()[0])["test", 20]["values"]["metrics/accuracy"]
    assert f"{accuracy:.4f}" in out
    assert "360" in out


def test_eval_again_replaces_and_as_adds(trained: rundir.RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    (trial,) = trained.trials()
    before = rundir.read_eval_results(trial)["test", 10]
    assert main(["eval", str(trial.path), "--step=10", "--again", "--no-tracking"]) == 0
    after = rundir.read_eval_results(trial)["test", 10]
    assert after["values"] == before["values"]
    assert after["finished_ms"] > before["finished_ms"]
    changed = ["--cfg.evals.test.num_batches=1", "--no-tracking"]
    assert main(["eval", str(trial.path), "--step=20", *changed]) == 2
    assert "--as=test-2" in capsys.readouterr().err
    assert main(["eval", str(trial.path), "--step=20", "--as=test-2", *changed]) == 0
    assert rundir.read_eval_results(trial)["test-2", 20]["num_examples"] == 100


def test_eval_of_the_best_checkpoint_in_shares_with_evaluators_of_a_file(
    trained: rundir.RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (trial,) = trained.trials()
    accuracies = {key: record["values"]["metrics/accuracy"] for key, record in rundir.read_eval_results(trial).items()}
    best = max((10, 20), key=lambda step: (accuracies["test", step], -step))
    file = tmp_path / "evals_of_today.py"
    file.write_text(
        "from kauldron_core import konfig\n"
        "from pipelines.configs import digits\n"
        "def get_config():\n"
        "    return konfig.ConfigDict({'again': digits.get_config().evals.test})\n"
    )
    monkeypatch.chdir(tmp_path)
    words = [f"--evals={file}", "--step=best", "--metric=test/metrics/accuracy", "--mode=max", "--shards=3"]
    assert main(["eval", str(trained.path), *words, "--no-tracking"]) == 0
    record = rundir.read_eval_results(trial)["again", best]
    assert record["values"]["metrics/accuracy"] == accuracies["test", best]
    assert record["num_examples"] == 360


def test_following_a_run_that_has_ended_evaluates_what_is_due(
    trained: rundir.RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    (trial,) = trained.trials()
    rundir.result_path(trial, "test", 20).unlink()
    assert main(["eval", str(trained.path), "--follow", "--no-tracking"]) == 0
    assert ("test", 20) in rundir.list_eval_results(trial)


@pytest.mark.process
def test_the_code_of_a_run_is_used_in_a_new_process_when_it_is_trusted(tmp_path: Path) -> None:
    mine = tmp_path / "elsewhere" / "mine.py"
    mine.parent.mkdir()
    mine.write_text(Path(DIGITS).read_text())
    words = [*SMALL, f"--run.root={tmp_path}", "--run.name=one", "--no-tracking"]
    assert main(["train", str(mine), *words]) == 0
    mine.unlink()
    command = [sys.executable, "-m", "pipelines.evaluate", str(tmp_path / "one"), "--again", "--no-tracking"]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "add --trust-run" in refused.stderr
    trusted = subprocess.run([*command, "--trust-run"], env=environment, capture_output=True, text=True)
    assert trusted.returncode == 0, trusted.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "the run is missing"),
        (["{run}x"], "unknown run"),
        (["{run}", "--step=15"], "unknown step 15"),
        (["{run}", "--step=lates"], "Did you mean 'latest'?"),
        (["{run}", "--evals=tset"], "Did you mean 'test'?"),
        (["{run}", "--agian"], "--again"),
        (["{run}", "--follow", "--again"], "it doesn't go with --again"),
        (["{run}", "--step=best"], "--metric: unset"),
        (["{run}", "--metric=test/metrics/accuracy"], "Add --step=best"),
        (["{run}", "--follow", "--step=7"], "it doesn't go with --step=7"),
        (["{run}", "--actors=0"], "--actors: must be at least 1, not 0"),
        (["{run}", "--actors=999"], "--actors: asked for 999 times CPU 1. Room for: "),
        (["{run}", "--address=auto"], "give host:port of its head"),
        (["{run}", "--shards=99999"], "--shards: must be at least 1 and at most 1024, not 99999"),
    ],
)
def test_a_mistake_in_eval_is_one_line(
    words: list[str], expected: str, trained: rundir.RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", *(word.format(run=trained.path) for word in words), "--no-tracking"]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.process
@pytest.mark.timeout(240)  # two processes that import JAX and compile, one after the other
@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        (signal.SIGINT, 130),
        (signal.SIGUSR1, 143),
        pytest.param(signal.SIGHUP, 143, marks=pytest.mark.soak),
    ],
)
def test_a_signal_saves_and_the_same_command_goes_on(tmp_path: Path, number: signal.Signals, status: int) -> None:
    """F24: SIGUSR1 and SIGHUP are what SIGTERM is."""
    # Long enough that the signal comes well before the end.
    words = ["--cfg.num_train_steps=8_000", "--cfg.checkpointer.save_interval_steps=100_000", "--cfg.model.hidden=8"]
    place = [f"--run.root={tmp_path}", "--run.name=one", "--no-tracking"]
    command = [sys.executable, "-m", "pipelines.train", DIGITS, *words, *place]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    first = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    trial = rundir.RunDir(tmp_path / "one").trial("0000")
    wait_for_step(trial, 100)
    first.send_signal(number)
    out, _ = first.communicate(timeout=100)
    assert first.returncode == status
    assert trial.status() == "preempted"
    assert "To go on: python -m pipelines.train" in out
    if number != signal.SIGTERM:  # What it has saved is the same.
        return
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert again.returncode == 0, again.stdout + again.stderr
    resumed = [event for event in rundir.EventFollower(trial.events).poll() if event["kind"] == rundir.RESUMED_FROM]
    assert len(resumed) == 1
    assert resumed[0]["step"] >= 100


def wait_for_step(trial: rundir.TrialDir, step: int) -> None:
    deadline = time.monotonic() + 90
    while not any(event["step"] >= step for event in rundir.read_events(trial.events)):
        assert time.monotonic() < deadline, "training did not begin"
        time.sleep(0.1)
