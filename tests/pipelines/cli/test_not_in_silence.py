"""What a command does not find, does not take, or has nothing to do about is said, and in the words of its siblings."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kauldron_core import ckpts, kd, rundir
from pipelines.cli import main
from tests.pipelines.cli.refusing import refused

Captured = pytest.CaptureFixture[str]

DIGITS = str(Path(__file__).parents[3] / "pipelines/configs/digits.py")


@pytest.mark.slow
def test_every_command_about_runs_lists_the_same_runs(
    run: rundir.RunDir, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(run.path.parents[1])
    commands = ("status", "best", "logs", "stop", "rm", "record", "eval", "ckpt ls", "ckpt show", "sweep --resume=")
    for command in commands:
        words = [f"{command}demi"] if command.endswith("=") else [*command.split(), "demi"]
        line = refused(capsys, *(" ".join(words).split()))
        assert line == "error: unknown run 'demi'. Did you mean 'runs/demo'? Available: runs/demo.\n", command
    assert main(["record", "demo"]) == 0


@pytest.mark.slow
def test_one_checkpoint_is_shown_with_all_that_the_list_shows(run: rundir.RunDir, capsys: Captured) -> None:
    assert main(["ckpt", "show", str(run.path)]) == 0
    assert "test/losses/total: " in capsys.readouterr().out
    assert main(["ckpt", "show", str(run.path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["metrics"]
    assert main(["ckpt", "ls", str(run.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["0000"][-1]["metrics"] == shown


@pytest.mark.slow
def test_what_a_checkpoint_is_expected_to_fill_is_what_it_fills(run: rundir.RunDir, capsys: Captured) -> None:
    """The arrays alone are 1 KB, and the files 14."""
    expected = ckpts.expected_bytes(kd.load_trial(run.trial("0000")).state_specs)
    assert main(["ckpt", "ls", str(run.path), "--json"]) == 0
    for entry in json.loads(capsys.readouterr().out)["0000"]:
        assert entry["num_bytes"] / 1.5 < expected < entry["num_bytes"] * 1.5


@pytest.mark.slow
def test_a_trial_that_printed_nothing_is_said_to_have(run: rundir.RunDir, capsys: Captured) -> None:
    logs = rundir.make_folder(run.trial("0000").logs)
    (logs / "stdout.log").touch()
    assert main(["logs", str(run.path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"note: nothing was printed, {logs} is empty.\n"
    (logs / "stdout.log").write_text("compiling\n")
    assert main(["logs", str(run.path)]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("compiling\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--order=newest", "--patience-s=1", "--run.name=x", "--args.size=3"])
def test_an_option_that_would_have_no_effect_is_refused(flag: str, run: rundir.RunDir, capsys: Captured) -> None:
    line = refused(capsys, "eval", str(run.path), "--no-tracking", flag)
    assert flag.partition("=")[0].partition(".")[0] in line


def test_a_command_lists_the_overrides_that_it_takes(capsys: Captured) -> None:
    line = refused(capsys, "train", DIGITS, "--dry-run")
    assert "--run.PATH" in line
    assert "--sweep.PATH" not in line and "--trials" not in line
    line = refused(capsys, "train", DIGITS, "--sweep.seed=[1, 2]")
    assert line == f"error: kdr train runs one trial. For several: kdr sweep {DIGITS} '--sweep.seed=[1, 2]'\n"


@pytest.mark.parametrize(
    "place", ["/etc/passwd", "/etc/passwd/x", "/proc/x", "/dev/null", "long", "pipe.py", "loop.py"]
)
def test_a_place_that_can_be_no_run_and_no_config_is_one_line(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.py")
    Path("loop.py").symlink_to("loop.py")
    place = "a" * 300 if place == "long" else place
    config = ["a config is a .py or .json file", "unknown config file", "longer than a name", "no config."]
    for words, parts in (
        (["status", place], ["unknown run", "longer than a name"]),
        (["config", "show", place], config),
        (["train", place, f"--run.root={tmp_path}"], config),
        (["train", DIGITS, f"--run.name={place}/x"], ["--run.name"]),
        (["ckpt", "ls", place], ["unknown run", "neither a run", "longer than a name", "no config.json"]),
    ):
        line = refused(capsys, *words)
        assert any(part in line for part in parts), line
        assert "--debug" not in line and "Did you mean" not in line
