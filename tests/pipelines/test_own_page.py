"""`docs/own.md`: the project of one's own that it shows, with its commands, as they stand there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from kauldron_core import rundir
from pipelines.cli import main

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "own.md").read_text()


def test_the_page_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    parts, experiment, use = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    Path("parts.py").write_text(parts)
    Path("spirals.py").write_text(experiment)
    (commands,) = re.findall(r"```\n(kdr .*?)```", PAGE, re.DOTALL)
    for line in commands.replace("\\\n", "").splitlines():
        words = shlex.split(line)[1:]
        # A sweep is on Ray, and MLflow is a process of its own: neither is what the page is about.
        words += {"sweep": ["--dry-run", "--pack=off"], "train": ["--no-tracking"], "eval": ["--no-tracking"]}.get(
            words[0], []
        )
        assert main(words) == 0, (line, capsys.readouterr().err)
    namespace: dict[str, Any] = {"__name__": "own"}
    exec(compile(use, "docs/own.md", "exec"), namespace)
    (trial,) = rundir.RunDir(tmp_path / "runs" / "one").trials()
    results = rundir.read_eval_results(trial)
    assert {name for name, _ in results} == {"test", "fresh"}
    assert results["test", 400]["values"]["metrics/errors"] < 0.3  # Half of them by chance.
