"""What a command that is refused says."""

from __future__ import annotations

import pytest

from pipelines.cli import main


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Returns the one line with which a command ends as a mistake."""
    capsys.readouterr()
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    return captured.err
