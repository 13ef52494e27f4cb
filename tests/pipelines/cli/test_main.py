"""The command line's own messages and exit statuses."""

import shlex
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from kauldron_core.errors import ConfigError, RunFailed
from pipelines.cli import main
from pipelines.cli.app import COMMANDS
from pipelines.cli.run import run


def test_help_lists_every_command_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert "kdr sweep pipelines/configs/digits.py" in out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kdr {version('kauldron-ray')}\n"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["swep"], "error: kdr: unknown command 'swep'. Did you mean 'sweep'?"),
        (["--verson"], "--version"),
    ],
)
def test_an_unknown_word_is_one_line_with_the_closest(
    argv: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err
    assert captured.err.count("\n") == 1


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert "Commands:" in captured.out + captured.err


@pytest.mark.parametrize(
    ("outcome", "status", "line"),
    [
        (ConfigError("cfg.a: wrong."), 2, "error: cfg.a: wrong."),
        (click.UsageError("two\nlines"), 2, "error: two lines"),
        (RunFailed("trial 3 failed"), 1, "error: trial 3 failed"),
        (KeyboardInterrupt(), 130, "error: interrupted"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_status(
    outcome: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def command() -> None:
        raise outcome

    assert run(command, [], program="kdr") == status
    assert capsys.readouterr().err.lstrip("\n") == f"{line}\n"  # an empty line after the ^C of a terminal


@pytest.mark.parametrize("status", [0, 1, 143])
def test_a_command_returns_its_status(status: int) -> None:
    assert run(click.Command("one", callback=lambda: status), [], program="kdr") == status


def test_an_error_that_nobody_foresaw_keeps_its_traceback_and_ends_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(click.Command("one", callback=lambda: 1 // 0), [], program="kdr") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1].startswith("error: ZeroDivisionError: ")
    assert lines[-1].endswith("(not foreseen; the lines above say where)")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (PermissionError(13, "Permission denied", "/a/b"), 2, "/a/b: Permission denied."),
        (OSError(30, "Read-only file system", "/a/b"), 2, "/a/b: Read-only file system."),
        (OSError(28, "No space left on device"), 1, "No space left on device."),
        (ValueError("RESOURCE_EXHAUSTED: writing /a: No space left on device"), 1, "No space left on device."),
        (FileNotFoundError(2, "No such file or directory", "/a"), 2, "/a: No such file or directory."),
    ],
    ids=str,
)
def test_what_a_machine_refuses_is_one_line(
    error: Exception, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """F26, F27: 32 to 41 lines of traceback."""
    error.add_note("Kept: all. To go on: kdr status demo")

    @click.command()
    def command() -> None:
        raise error

    assert run(command, [], program="kdr") == status
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{line} Kept: all. To go on: kdr status demo (--debug shows where.)" in told


def test_debug_shows_the_traceback_of_what_is_one_line_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["status", "nothing"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    for words in (["status", "nothing", "--debug"], ["--debug", "status", "nothing"]):
        assert main(words) == 2
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith("Traceback")
        assert lines[-1].startswith("error: unknown run 'nothing'")
    monkeypatch.setenv("KDR_DEBUG", "1")
    assert main(["status", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("Traceback")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_debug(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert "--debug" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        (["--sweep.optimizer.learning_rate=[1e-3, 1e-2]", "--dry"], ["--dry-run"]),
        (["--sweep.optimizer.learning_rate=[1e-3,", "--retry"], ["--retry-failed"]),
        (["--cfg.a", "--addr"], ["--address"]),
    ],
)
def test_completion_after_a_swept_argument_gives_the_candidates_alone(
    words: list[str], candidates: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """I04: completion after a swept argument gives the candidates alone."""
    typed = ["kdr", "sweep", "pipelines/configs/digits.py", *words]
    monkeypatch.setenv("_KDR_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", shlex.join(typed))
    monkeypatch.setenv("COMP_CWORD", str(len(typed) - 1))
    with pytest.raises(SystemExit) as ended:
        main([])
    captured = capsys.readouterr()
    assert ended.value.code == 0
    assert [line.split(",")[1] for line in captured.out.split()] == candidates
    assert captured.err == ""


@pytest.mark.process
def test_help_is_there_at_once_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from pipelines.cli import main; main(['--help']);"
        "heavy = {'jax', 'numpy', 'ray', 'mlflow', 'rich', 'ml_collections'} & set(sys.modules); sys.exit(bool(heavy))"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    # Far above what it takes (0.1 s), so that a busy machine does not matter; imports are what is checked.
    assert time.monotonic() - began < 10
