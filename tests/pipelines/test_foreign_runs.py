"""A run that somebody sent is data: nothing in its files is called, and a damaged file costs its own line only."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kauldron_core import rundir
from kauldron_core.errors import ConfigError, DamagedFile
from pipelines import experiment as experiments
from pipelines import planning, sources
from pipelines.cli import main
from pipelines.cli.words.command import read_command
from ray_cluster.driver import layout
from ray_cluster.workers import pack_records

DIGITS = "pipelines/configs/digits.py"
DEEP = "[" * 100_000


def lay_out(tmp_path: Path, *words: str) -> rundir.RunDir:
    command = read_command([DIGITS, f"--run.root={tmp_path}", "--run.name=demo", *words])
    prepared = planning.prepare(command, experiments.read_spec(command), command=f"kdr sweep {DIGITS}")
    prepared.write_sources()
    run = layout.lay_out(prepared.plan)
    layout.write_trials(prepared.plan, run)
    return run


@pytest.fixture
def run(tmp_path: Path) -> rundir.RunDir:
    """A run of two trials, one of them done and evaluated."""
    run = lay_out(tmp_path, "--sweep.model.hidden=[8, 16]", "--cfg.num_train_steps=10")
    trial = run.trial("0000-hidden=8")
    with rundir.EventWriter(trial.events) as events:
        events.append("metrics", 10, split="train", values={"losses/total": 0.5})
    rundir.write_eval_result(trial, "test", 10, {"status": "done", "finished_ms": 1, "values": {"losses/total": 0.25}})
    rundir.write_status(trial, "done")
    return run


@pytest.fixture
def search(tmp_path: Path) -> rundir.RunDir:
    words = ("--run.search=optuna", "--run.metric=train/losses/total", "--run.mode=min", "--run.num_samples=2")
    return lay_out(tmp_path, "--sweep.optimizer=[optax.sgd(0.05), optax.adam(1e-3)]", *words)


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that can be imported; the file is there once it was."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    sung = folder / "sung"
    code = f"open({str(sung)!r}, 'w')\ndef call(*args, **kwargs):\n    pass\n"
    (folder / "kdr_canary.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    yield sung
    sys.modules.pop("kdr_canary", None)


def calls(canary: Path) -> dict[str, dict[str, Any]]:
    return {
        "os.system": {"__qualname__": "os:system", "0": f"touch {canary}"},
        "a module": {"__qualname__": "kdr_canary:call"},
        "a constant": {"__const__": "kdr_canary:call"},
    }


@pytest.mark.parametrize("name", ["os.system", "a module", "a constant"])
def test_a_call_in_a_run_spec_is_refused_as_in_a_config(
    run: rundir.RunDir, canary: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """F42: a call in `sweep.json` ran when the run was gone on with."""
    whole = run.sweep
    for value in (calls(canary)[name], [calls(canary)[name]], {"CPU": calls(canary)[name]}):
        for field in ("stop", "resources", "metric", "py_modules"):
            run.write_sweep({**whole, "run": {**whole["run"], field: value}})
            assert main(["sweep", f"--resume={run.path}", "--dry-run"]) == 2
            assert capsys.readouterr().err.startswith("error: ")
    run.write_sweep({**whole, "run": {**whole["run"], "stop": calls(canary)[name]}})
    assert main(["sweep", f"--resume={run.path}", "--run.max_concurrent=1", "--dry-run"]) == 2
    assert "not trusted" in capsys.readouterr().err
    assert not canary.exists()


def test_a_call_in_the_rule_of_a_pack_is_refused(run: rundir.RunDir, canary: Path) -> None:
    """F42: so did one in the rule of `pack.json`, in the worker that trains the pack."""
    names = [trial.name for trial in run.trials()]
    pack = {"members": [0, 1], "arguments": []}
    for call in calls(canary).values():
        for rule in (call, {"__qualname__": "kauldron_core.packs:Halving", "min_steps": 1, "metric": call}):
            run.pack("one").write({"trials": names, "pack": pack, "rule": rule})
            with pytest.raises(ConfigError, match="not trusted"):
                next(pack_records.records_of(run.pack("one"), threading.Event()))
    assert not canary.exists()


@pytest.mark.parametrize(
    "text",
    [
        "[os.system('touch {canary}')]",
        "[kdr_canary.call()]",
        "[py::kdr_canary.call()]",
        "[optax.sgd(kdr_canary.call())]",
        "[{{'__qualname__': 'os:system', '0': 'touch {canary}'}}]",
        "choice([{{'__qualname__': 'kdr_canary:call'}}])",
        "[{{'__const__': 'kdr_canary:call'}}]",
    ],
)
def test_the_texts_of_axes_in_a_file_may_name_what_a_config_may(
    search: rundir.RunDir, canary: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """F43: the axes of a search were read from `sweep.json` as if they had been typed."""
    axes = [["optimizer", text.format(canary=canary)]]
    search.write_sweep({**search.sweep, "axes": axes})
    assert main(["sweep", f"--resume={search.path}", "--dry-run"]) == 2
    assert "not trusted" in capsys.readouterr().err
    assert not canary.exists()


def test_a_search_goes_on_with_its_own_axes(search: rundir.RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", f"--resume={search.path}", "--dry-run"]) == 0
    prepared = planning.resume(search)
    points = prepared.plan.search.space.ends() if prepared.plan.search is not None else []
    assert [dict(point)["optimizer"]["__qualname__"] for point in points] == ["optax:sgd", "optax:adam"]
    capsys.readouterr()


DAMAGE = {"empty": "", "cut": '{"status": "do', "deep": DEEP, "a list": "[]", "a number": "3", "not text": "\x00\x01"}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_costs_its_own_line(run: rundir.RunDir, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    """F52: an empty or cut `status.json` or record was a traceback in each command that met it."""
    trial = run.trial("0000-hidden=8")
    other = rundir.RunDir.create(run.path.parent / "other", {})
    for path in (trial.path / "status.json", rundir.result_path(trial, "test", 10), run.path / "control.json"):
        kept = path.read_text() if path.exists() else None
        path.write_text(damage)
        for words in (["status"], ["status", "--json"], ["best", "--metric=train/losses/total", "--mode=min"]):
            assert main([words[0], str(run.path), *words[1:]]) == 0
            out = capsys.readouterr().out
            assert trial.name in out
            assert path.name == "control.json" or f"{path}: damaged" in out
        assert main(["ls", str(run.path.parent)]) == 0
        out = capsys.readouterr().out
        assert other.name in out and "2  " in out
        assert main(["ckpt", "ls", str(run.path)]) == 0
        assert main(["sweep", f"--resume={run.path}", "--dry-run"]) == 0
        capsys.readouterr()
        path.unlink() if kept is None else path.write_text(kept)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_run_does_not_hide_the_others(
    run: rundir.RunDir, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """F52: one `sweep.json` that can't be read ended `kdr ls` of the whole folder."""
    shutil.copytree(run.path, run.path.with_name("broken"))
    broken = rundir.RunDir(run.path.with_name("broken"))
    broken.sweep_path.write_text(damage)
    assert main(["ls", str(run.path.parent)]) == 0
    out = capsys.readouterr().out
    assert "demo" in out and out.count(f"{broken.sweep_path}: damaged") == 1
    assert main(["status", str(broken.path)]) == 0
    assert f"{broken.sweep_path}: damaged" in capsys.readouterr().out
    assert main(["sweep", f"--resume={broken.path}", "--dry-run"]) == 2
    assert f"{broken.sweep_path}: damaged" in capsys.readouterr().err
    assert main(["record", str(broken.path)]) == 2
    capsys.readouterr()
    assert main(["eval", str(broken.path), "--step=all"]) in (1, 2)
    assert "MLflow at" not in capsys.readouterr().out
    assert main(["rm", str(broken.path), "--yes"]) == 0
    assert not broken.path.exists()


def test_a_damaged_config_is_written_anew_from_what_the_run_keeps(
    run: rundir.RunDir, caplog: pytest.LogCaptureFixture
) -> None:
    """F52: a trial whose `config.json` was cut held up the whole run."""
    trial = run.trial("0001-hidden=16")
    whole = trial.config_path.read_text()
    trial.config_path.write_text(whole[:100])
    prepared = planning.resume(run)
    layout.write_trials(prepared.plan, run)
    assert trial.config_path.read_text() == whole
    assert str(trial.config_path) in caplog.text


@pytest.mark.parametrize("name", ["../../outside", "/outside", ".hidden", "", "a\x1b[2J"])
def test_names_in_files_that_lead_elsewhere_are_refused(run: rundir.RunDir, name: str) -> None:
    """F42: what is read from a file and becomes a path is checked."""
    rows = [{**row, "name": name} for row in run.sweep["trials"]]
    run.write_sweep({**run.sweep, "trials": rows})
    with pytest.raises(DamagedFile, match="is no name"):
        _ = run.sweep
    points = json.loads((run.path / sources.POINTS).read_text())
    points["trials"][0]["name"] = name
    (run.path / sources.POINTS).write_text(json.dumps(points))
    with pytest.raises(ConfigError, match="name"):
        sources.read_trials(run)
    run.pack("one").write({"trials": [name]})
    with pytest.raises(DamagedFile, match="is no name"):
        run.pack("one").read()


@pytest.mark.parametrize("name", ["working_dir", "py_modules"])
def test_code_that_lies_in_a_run_is_not_sent_because_the_run_says_so(
    run: rundir.RunDir, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """F42: what a run asks to send to the nodes of a cluster would be its own code there, without `--trust-run`."""
    folder = rundir.make_folder(run.path / "extra")
    run.write_sweep({**run.sweep, "run": {**run.sweep["run"], name: str(folder)}})
    assert main(["sweep", f"--resume={run.path}", "--dry-run"]) == 2
    assert f"--run.{name}: the run asks for" in capsys.readouterr().err
    assert sources.read_spec(run, [(name, f"{str(folder)!r}")]).name == run.name


def test_a_damaged_pack_lets_its_trials_go_on_without_it(
    run: rundir.RunDir, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """F52: a `pack.json` that was cut held up the whole run."""
    run.pack("one").write({"trials": [trial.name for trial in run.trials()]})
    run.pack("one").pack_path.write_text('{"tri')
    assert main(["sweep", f"--resume={run.path}", "--dry-run"]) == 0
    assert "pack.json: damaged" in caplog.text
    capsys.readouterr()


def test_what_of_a_run_is_not_read_is_said_by_whoever_shows_it(
    run: rundir.RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F52, F57: a trial that was a link dropped out without a word, and another one was the best."""
    linked, other = run.trial("0000-hidden=8"), run.trial("0001-hidden=16")
    elsewhere = shutil.move(linked.path, tmp_path / "elsewhere")
    linked.path.symlink_to(elsewhere)
    other.config_path.write_text("")
    other.checkpoints.symlink_to(tmp_path / "elsewhere")
    expected = [
        f"damaged   {linked.path}: is a link, and what it leads to is left out.",
        f"damaged   {other.config_path}: damaged, it is empty.",
        f"damaged   {other.checkpoints}: is a link, and what it leads to is left out.",
    ]
    assert main(["status", str(run.path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith("damaged")] == expected
    main(["sweep", f"--resume={run.path}", "--dry-run"])
    assert [line.replace("damaged     ", "damaged   ") for line in capsys.readouterr().out.splitlines()][
        -3:
    ] == expected


@pytest.mark.parametrize("config", ['{"__qualname__": "os:system", "0": "x"}', '{"model": {"hidden": 9}}'])
def test_no_command_is_told_for_a_config_that_is_not_the_listed_one(
    run: rundir.RunDir, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """F52: `--cfg.model.hidden=None`, or what somebody has put there, was told as the way to train it again."""
    trial = run.trial("0000-hidden=8")
    trial.config_path.write_text(config)
    assert main(["best", str(run.path), "--metric=test/losses/total"]) == 0
    expected = (
        f"train     can't be told: {trial.config_path}: damaged, model.hidden is not 8 there, as the run lists it."
    )
    assert expected in capsys.readouterr().out.splitlines()
