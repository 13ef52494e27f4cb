"""A disk that takes no more ends a run in one line; the same command goes on when it takes more."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from kauldron_core import rundir
from pipelines.cli import main

pytestmark = [
    pytest.mark.slow,
    # Nor does the cache of compiled programs take more, which is only said.
    pytest.mark.filterwarnings("ignore:Error writing persistent compilation cache"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

DIGITS = str(Path(__file__).parents[2] / "pipelines/configs/digits.py")


@contextlib.contextmanager
def files_up_to(num_bytes: int) -> Iterator[None]:
    """Lets no file of this process become larger: the system refuses the write, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("where", "num_bytes", "log_every", "kept"),
    [("while events are written", 12_000, 1, "the checkpoint at step 20."), ("at a save", 9_000, 1000, "what")],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else None,
)
def test_a_disk_that_is_full_is_one_line_and_the_same_command_goes_on(
    where: str, num_bytes: int, log_every: int, kept: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F26: a traceback, and nothing of what was kept."""
    hidden = 8 if log_every == 1 else 64
    words = [
        *("train", DIGITS, "--cfg.num_train_steps=60", "--cfg.checkpointer.save_interval_steps=20"),
        *(f"--cfg.log_metrics_every={log_every}", f"--cfg.model.hidden={hidden}"),
        *(f"--run.root={tmp_path}", "--run.name=one", "--no-tracking"),
    ]
    with files_up_to(num_bytes):
        assert main(words) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("error: ")
    assert "File too large" in line
    assert f"Kept: {kept} " in line
    assert f"To go on, when that is mended: kdr {' '.join(words)}" in line
    assert main(words) == 0
    assert rundir.RunDir(tmp_path / "one").trials()[0].status() == "done"


def test_no_space_at_the_start_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F26: full before anything is there."""
    words = ["train", DIGITS, f"--run.root={tmp_path}", "--run.name=one", "--no-tracking"]
    with files_up_to(10):
        assert main(words) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "File too large" in captured.err
    assert not rundir.RunDir(tmp_path / "one").exists()
