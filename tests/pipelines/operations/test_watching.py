"""Looking at runs and steering them: only the run directory is read."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kauldron_core import konfig, rundir
from kauldron_core.escaping import escaped
from pipelines.cli import main
from pipelines.configs import digits
from ray_cluster.driver import control

COMMAND = "kdr sweep pipelines/configs/digits.py --cfg.num_train_steps=100 --sweep.model.hidden='[8, 16]'"


@pytest.fixture
def run(tmp_path: Path) -> rundir.RunDir:
    """A run with a finished trial, a running one, one that diverged and one that failed."""
    rates = {"0000-hidden=8": 8, "0001-hidden=16": 16, "0002-hidden=32": 32, "0003-hidden=64": 64}
    rows = [{"name": name, "index": i, "overrides": [["model.hidden", n]]} for i, (name, n) in enumerate(rates.items())]
    ranking = rundir.Ranking("test/metrics/accuracy", "max", "run.metric")
    directions = {"test/metrics/accuracy": "higher"}
    description = {"ranking": ranking.to_json(), "directions": directions, "command": COMMAND, "trials": rows}
    run = rundir.RunDir.create(tmp_path / "demo", description)
    config = digits.get_config()
    config.num_train_steps = 100
    for name, hidden in rates.items():
        config.model.hidden = hidden
        trial = run.trial(name).create(konfig.to_json(config))
        with rundir.EventWriter(trial.events) as events:
            events.append("metrics", 1, split="train", values={"losses/total": 3.0})
            events.append("metrics", 10, split="train", values={"losses/total": 2.0})
            events.append("metrics", 50, split="train", values={"losses/total": 1.0 / hidden})
        record = {"status": "done", "finished_ms": 1, "values": {"metrics/accuracy": 0.5 + hidden / 1000}}
        rundir.write_eval_result(trial, "test", 50, record)
    rundir.write_status(run.trial("0000-hidden=8"), "done")
    rundir.write_status(run.trial("0001-hidden=16"), "running")
    rundir.write_status(run.trial("0002-hidden=32"), "diverged", reason="loss xent is nan at step 50")
    rundir.write_status(run.trial("0003-hidden=64"), "failed", error="OSError: no disk")
    return run


def test_status_says_how_each_trial_stands_and_why(run: rundir.RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(run.path)]) == 0
    out = capsys.readouterr().out
    # Nobody is at work, so nothing runs, whatever a killed driver has left in the file.
    assert "1 diverged, 1 failed, 1 done, 1 interrupted" in out
    assert f"go on     kdr sweep --resume={run.path}" in out
    assert "0002-hidden=32 (model.hidden=32) diverged: loss xent is nan at step 50" in out
    assert "0003-hidden=64 (model.hidden=64) failed: OSError: no disk" in out
    assert re.search(r"driver +none", out)
    with run.lock():
        assert main(["status", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert "1 running, 1 diverged, 1 failed, 1 done" in out
    assert "at work" in out and "go on" not in out
    assert re.search(r"left +about", out)


def test_status_for_programs(run: rundir.RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(run.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"interrupted": 1, "diverged": 1, "failed": 1, "done": 1}
    assert found["metric"] == "test/metrics/accuracy"
    assert found["trials"][0]["name"] == "0003-hidden=64"


def test_watching_needs_neither_ray_nor_jax(run: rundir.RunDir) -> None:
    code = f"""
import sys
from pipelines.cli import main
for words in (["status"], ["best"], ["logs", "0"]):
    main([words[0], {str(run.path)!r}, *words[1:]])
main(["ls", {str(run.path.parent)!r}])
sys.exit(sum(name in sys.modules for name in ("ray", "jax", "mlflow")))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_best_prints_a_train_command_that_gives_the_same_config(
    run: rundir.RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["best", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert "trial     0003-hidden=64 (failed at step 50)" in out
    assert "test/metrics/accuracy 0.5640, higher is better\n" in out
    words = shlex.split(re.findall(r"^train +(.*)$", out, re.MULTILINE)[0])
    assert words[:2] == ["kdr", "train"]
    assert main(["config", "show", *words[2:], "--format=json"]) == 0
    shown = konfig.from_json(capsys.readouterr().out)
    assert konfig.diff(shown, konfig.load(run.trial("0003-hidden=64").config_path)) == konfig.diff(shown, shown)


def test_best_by_another_metric(run: rundir.RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["best", str(run.path), "--metric=train/losses/total", "--top=2"]) == 0
    assert "train/losses/total 0.0156, lower is better" in capsys.readouterr().out
    assert main(["best", str(run.path), "--metric=test/metrics/acuracy"]) == 2
    assert "Did you mean 'test/metrics/accuracy'?" in capsys.readouterr().err


def test_best_without_a_metric_goes_by_the_rule_and_says_so(
    run: rundir.RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    """F02: of an experiment whose only evaluator runs beside training, the training loss ranks."""
    run.write_sweep({**run.sweep, "ranking": None})
    assert main(["best", str(run.path)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("by "))
    assert line == (
        "by        train/losses/total 0.0156, lower is better; nobody said by which metric, another: --metric=NAME"
    )


def test_what_ranks_is_the_same_everywhere_and_stays(run: rundir.RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    """F01, F02: a later evaluator with a better number and an earlier name changes nothing; its direction is known."""
    kept = rundir.Ranking("train/losses/total", "min", "training")
    run.write_sweep({**run.sweep, "ranking": kept.to_json()})
    for number, trial in enumerate(run.trials()):
        values = {"losses/total": float(number), "metrics/bpc": float(number), "metrics/odd": 1.0}
        record = {"status": "done", "values": values, "better": {"metrics/bpc": "lower"}}
        rundir.write_eval_result(trial, "aaa", 50, record)
    assert main(["status", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert "ranked by train/losses/total, lower is better" in out
    assert re.findall(r"^ (000\d)", out, re.MULTILINE) == ["0003", "0002", "0001", "0000"]
    assert main(["best", str(run.path)]) == 0
    assert "trial     0003-hidden=64" in capsys.readouterr().out
    assert main(["best", str(run.path), "--metric=aaa/metrics/bpc"]) == 0
    assert "trial     0000-hidden=8" in capsys.readouterr().out
    assert main(["ls", str(run.path.parent)]) == 0
    assert "train/losses/total, lower is better" in capsys.readouterr().out


def test_a_metric_of_which_nothing_is_known_needs_a_mode(
    run: rundir.RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    """F01: an own metric that says nothing; a run of an earlier version."""
    record = {"status": "done", "values": {"metrics/bpc": 1.0}}
    rundir.write_eval_result(run.trial("0000-hidden=8"), "own", 50, record)
    assert main(["best", str(run.path), "--metric=own/metrics/bpc"]) == 2
    assert "--mode: unset, and nothing says whether more or less of 'own/metrics/bpc'" in capsys.readouterr().err
    assert main(["best", str(run.path), "--metric=own/metrics/bpc", "--mode=min"]) == 0
    run.write_sweep({"metric": "test/metrics/accuracy", "mode": "max", "command": COMMAND})
    capsys.readouterr()
    assert main(["best", str(run.path)]) == 2
    assert main(["status", str(run.path)]) == 0
    assert "ranked by nothing: --mode: unset, and nothing says" in capsys.readouterr().out


def test_logs_are_found_by_number_and_by_a_part_of_the_name(
    run: rundir.RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = run.trial("0001-hidden=16")
    rundir.make_folder(trial.logs)
    (trial.logs / "stdout.log").write_text("compiling\n")
    (trial.logs / "stderr.log").write_text("careful\n")
    for name in ("1", "0001", "hidden=16", trial.name):
        assert main(["logs", str(run.path), name]) == 0
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("compiling\n", "careful\n")
    assert main(["logs", str(run.path), "hidden"]) == 2
    assert "part of 4 trials" in capsys.readouterr().err
    assert main(["logs", str(run.path), "0001-hiden=16"]) == 2
    assert "Did you mean '0001-hidden=16'?" in capsys.readouterr().err


def test_a_run_with_one_trial_needs_no_name_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F39: `kdr logs RUN` takes the only trial; of several it lists them."""
    run = rundir.RunDir.create(tmp_path / "one")
    for name in ("0000-a=1", "0001-a=2"):
        trial = run.trial(name).create("{}")
        (rundir.make_folder(trial.logs) / "stdout.log").write_text(f"{name}\n")
        if name == "0000-a=1":
            assert main(["logs", str(run.path)]) == 0
    assert capsys.readouterr().out == "0000-a=1\n"
    assert main(["logs", str(run.path)]) == 2
    assert "has 2 trials. Say which one: TRIAL of 0000-a=1, 0001-a=2." in capsys.readouterr().err
    assert main(["logs", f"{run.path}/trials/1"]) == 0
    assert capsys.readouterr().out == "0001-a=2\n"


def test_ls_lists_runs_with_their_statuses(run: rundir.RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", str(run.path.parent)]) == 0
    assert re.search(r"demo .* 4 +1 diverged, 1 failed, 1 done, 1 interrupted", capsys.readouterr().out)


def test_stop_is_refused_without_a_driver_and_asks_one_that_works(
    run: rundir.RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stop", str(run.path)]) == 2
    assert "no driver is at work" in capsys.readouterr().err
    with run.lock():
        assert main(["stop", str(run.path), "0"]) == 2
        assert "has ended already, with status done" in capsys.readouterr().err
        assert main(["stop", str(run.path), "1"]) == 0
        assert not control.is_stop_requested(run)
        assert "kdr stop" in str(control.stop_reason(run, "0001-hidden=16"))
        assert main(["stop", str(run.path)]) == 0
        assert control.is_stop_requested(run)
        assert control.stop_reason(run, "0001-hidden=16")


def test_rm_removes_what_is_its_own(
    run: rundir.RunDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.trial("0000-hidden=8").path / "notes.txt").write_text("mine")
    with run.lock():
        assert main(["rm", str(run.path), "--yes"]) == 2
    assert "a driver is at work" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["rm", str(run.path)]) == 130
    assert run.exists()
    assert main(["rm", str(run.path), "--yes"]) == 0
    assert "which kdr did not write" in capsys.readouterr().out
    assert [path.name for path in run.path.rglob("*") if path.is_file()] == ["notes.txt"]
    assert main(["status", str(run.path)]) == 2


def test_rm_takes_a_link_away_and_leaves_what_it_leads_to(
    run: rundir.RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F47: a trial folder, a folder in a trial, or all of `trials` that are links into another run."""
    other, third = rundir.RunDir.create(tmp_path / "other"), rundir.RunDir.create(tmp_path / "third")
    other.trial("0000").path.symlink_to(run.trial("0000-hidden=8").path)
    (other.trial("0001").create("{}").path / "evals").symlink_to(run.trial("0000-hidden=8").evals)
    third.trials_path.rmdir()
    third.trials_path.symlink_to(run.trials_path)
    before = sorted(run.path.rglob("*"))
    for one in (other, third):
        assert main(["rm", str(one.path), "--yes"]) == 0
        assert not one.path.exists()
    assert sorted(run.path.rglob("*")) == before
    (tmp_path / "latest").symlink_to(run.path)
    assert main(["rm", str(tmp_path / "latest"), "--yes"]) == 2
    assert f"is a link to {run.path}. Name that" in capsys.readouterr().err
    assert run.exists()


EVIL = "\x1b]52;c;aWQ=\x07\x1b[2J\u202e[bold red]x[/]"


def test_what_a_run_says_acts_on_no_terminal(run: rundir.RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    """F51: control sequences, marks of direction and markup in errors, metrics, overrides, logs and names."""
    trial = run.trial("0003-hidden=64")
    rundir.write_status(trial, "failed", error=EVIL, retry=True)
    with rundir.EventWriter(trial.events) as events:
        events.append("metrics", 60, split="train", values={f"losses/{EVIL}": 1.0})
    rundir.make_folder(trial.logs)
    (trial.logs / "stdout.log").write_text(f"{EVIL}\n")
    sweep = run.sweep
    sweep["trials"][3]["overrides"] = [[EVIL, EVIL]]
    run.write_sweep({**sweep, "command": f"kdr train x.py; {EVIL}"})
    name = EVIL.translate(str.maketrans("", "", "[]/"))
    rundir.RunDir.create(run.path.parent / f"run{name}")
    shutil.copytree(trial.path, run.trials_path / f"0004{name}")
    for words in (
        ["status", str(run.path)],
        ["best", str(run.path), "--top=9", f"--metric=train/losses/{EVIL}"],
        ["best", str(run.path), f"--metric={EVIL}"],
        ["ls", str(run.path.parent)],
        ["logs", str(run.path), "3"],
        ["logs", str(run.path), EVIL],
        ["ckpt", "ls", str(run.path)],
        ["status", str(run.path), "--json"],
    ):
        main(words)
        said = capsys.readouterr()
        text = said.out + said.err
        assert text.replace("\n", "").replace("\t", "").isprintable(), (words, text)
    assert main(["status", str(run.path)]) == 0
    assert f"failed: {escaped(EVIL)}" in capsys.readouterr().out


def test_logs_keep_colours_and_follow_no_link(run: rundir.RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    """F51, F47: what a trial printed is passed on, plain colours too; a link is not what it printed."""
    logs = rundir.make_folder(run.trial("0000-hidden=8").logs)
    (logs / "stdout.log").write_bytes(b"\x1b[31mred\x1b[0m\t\xc3\xa9\xff\n")
    (run.path.parent / "private").write_text("private")
    (logs / "stderr.log").symlink_to(run.path.parent / "private")
    assert main(["logs", str(run.path), "0"]) == 0
    said = capsys.readouterr()
    assert said.out == "\x1b[31mred\x1b[0m\té\ufffd\n"
    assert said.err == ""


def test_an_unknown_run_names_the_closest(
    run: rundir.RunDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["status", f"{run.path.parent}/dmo"]) == 2
    assert f"Did you mean '{run.path.parent}/demo'?" in capsys.readouterr().err
    for words in (["ckpt", "ls"], ["rm", "--yes"], ["status"], ["best"]):
        assert main([*words, str(run.path.parent)]) == 2
        err = capsys.readouterr().err
        assert f"a folder of runs, and no run itself. Say which one: {run.path.parent}/demo." in err
