"""Completion by the shell: candidates, and nothing else, whatever stands on the line."""

from __future__ import annotations

import pytest
from click.shell_completion import BashComplete

from pipelines.cli.app import kdr


def candidates(line: str, incomplete: str) -> list[str]:
    completion = BashComplete(kdr, {}, "kdr", "_KDR_COMPLETE")
    return [item.value for item in completion.get_completions(line.split(), incomplete)]


@pytest.mark.parametrize(
    "line",
    [
        "sweep",
        "sweep d.py --sweep.x=[1,2]",
        "sweep d.py --sweep.x=[1, 2]",
        "sweep d.py --sweep.x=[1,",
        "sweep d.py --sweep.x",
        "sweep d.py --cfg.x 5",
        "sweep d.py d.py d.py",
        "sweep --no-such-flag",
        "sweep d.py --flagfile=none.txt",
    ],
)
def test_options_are_completed_after_any_swept_argument(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """I04: options are completed after any swept argument."""
    assert "--dry-run" in candidates(line, "--")
    assert candidates(line, "--sweep.x") == []
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_commands_are_completed() -> None:
    """I04: commands are completed."""
    assert candidates("", "sw") == ["sweep"]
    assert candidates("config", "sch") == ["schema"]
    assert candidates("no-such-command", "--x") == []
