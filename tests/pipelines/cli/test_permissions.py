"""What may not be written, or read, is said in one line; what can be read is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from kauldron_core import rundir
from pipelines.cli import main
from tests.pipelines.cli.refusing import refused
from tests.privileges import modes_bind, read_only

pytestmark = pytest.mark.slow

DIGITS = str(Path(__file__).parents[3] / "pipelines/configs/digits.py")
Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("command", ["train", "sweep"])
@pytest.mark.parametrize("below", ["", "new"])
def test_a_root_that_can_t_be_written_is_one_line(command: str, below: str, tmp_path: Path, capsys: Captured) -> None:
    """F27: `--run.root` in mode 0555."""
    with read_only(tmp_path):
        line = refused(capsys, command, DIGITS, f"--run.root={tmp_path / below}")
    assert "--run.root" in line
    assert "Permission denied" in line
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_somebody_else_is_neither_removed_nor_changed(run: rundir.RunDir, capsys: Captured) -> None:
    """F27: `kdr rm` of a foreign run."""
    place, before = str(run.path), sorted(run.path.rglob("*"))
    with read_only(run.path):
        assert "can't be removed" in refused(capsys, "rm", place, "--yes")
        assert "Permission denied" in refused(capsys, "ckpt", "rm", place, "10", "--yes")
        root = f"--run.root={run.path.parent}"
        assert "nothing can be written in" in refused(capsys, "train", DIGITS, root, "--run.name=demo")
        assert sorted(run.path.rglob("*")) == before


def test_reading_a_read_only_run_works(run: rundir.RunDir, capsys: Captured) -> None:
    """F28: what was evaluated is shown, and nothing is tried that can only fail."""
    place = str(run.path)
    with read_only(run.path.parent):
        for words in (
            *(["status"], ["best"], ["ckpt", "ls"], ["ckpt", "show"], ["ckpt", "verify"]),
            *(["eval"], ["eval", "--no-tracking"]),
        ):
            assert main([*words, place]) == 0, words
        assert main(["ls", str(run.path.parent)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert f"not recorded in MLflow: {place}: Permission denied" in captured.out
    assert "kdr record" not in captured.out


@pytest.mark.parametrize("words", [["--again"], ["--as=other"], ["--step=10"]], ids="".join)
def test_what_has_to_write_into_a_read_only_run_says_so(words: list[str], run: rundir.RunDir, capsys: Captured) -> None:
    """F28: `kdr eval` on a read-only run ended in a traceback."""
    with read_only(run.path):
        line = refused(capsys, "eval", str(run.path), "--no-tracking", *words)
    assert "Permission denied. A result is written beside its checkpoint" in line


@pytest.mark.parametrize(
    ("file", "commands"),
    [
        ("sweep.json", ["status", "best"]),
        ("trials/0000/config.json", ["ckpt ls"]),
        ("trials/0000/status.json", ["status", "best"]),
        ("trials/0000/events", ["status", "best"]),
        ("trials", ["status", "ckpt ls", "eval"]),
        ("", ["status", "best", "rm", "eval"]),
    ],
)
def test_what_can_t_be_read_is_named(file: str, commands: list[str], run: rundir.RunDir, capsys: Captured) -> None:
    """F27: a file of the run that this user may not read."""
    path = run.path / file
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        with modes_bind():
            for command in commands:
                line = refused(capsys, *command.split(), str(run.path))
                assert str(path) in line
                assert "Permission denied" in line
    finally:
        path.chmod(mode)
