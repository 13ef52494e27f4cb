"""A user's mistake: one line, status 2, and Ray was never even imported."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.process

DIGITS = "pipelines/configs/digits.py"
CODE = """
import sys
from pipelines.sweep import main
status = main(sys.argv[1:])
sys.exit(99 if "ray" in sys.modules else status)
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pipelines/configs/digit.py"], "Did you mean 'pipelines/configs/digits.py'?"),
        ([DIGITS, "--sweep.optimizer.learning_rat=[1e-3, 1e-2]"], "Did you mean 'learning_rate'?"),
        ([DIGITS, "--cfg.model.hidden=wide"], "cfg.model.hidden: expected int"),
        ([DIGITS, "--sweep.model.hidden=[]"], "--sweep.model.hidden: the list is empty"),
    ],
)
def test_it_is_found_before_ray_starts(
    words: list[str], expected: str, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = python("-c", CODE, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr
