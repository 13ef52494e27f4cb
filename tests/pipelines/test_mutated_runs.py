"""Whatever somebody did to a run, each command that reads it is harmless, and says what is wrong in lines."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.cli import main
from tests.pipelines import mutations, whole_run

_ALONE = "--trial=0002-learning_rate=0.03"
_CHEAP = (
    "status {run}",
    "status {run} --json",
    "best {run}",
    "best {run} --metric=train/losses/total --mode=min --top=3",
    "status {search}",
    "best {search}",
    "ls {root}",
    "logs {run} 0",
    "logs {run} 2",
    "ckpt ls {run}",
    "ckpt ls {run} --json",
    f"ckpt show {{run}} latest {_ALONE}",
    "ckpt show {run} best --trial=0 --metric=test/losses/total --mode=min",
    "ckpt verify {run}",
    f"ckpt rm {{run}} 2 {_ALONE} --yes",
    "stop {run}",
    "rm {run} --yes",
    "config show {run}/trials/0000-learning_rate=0.001",
    "config diff {run}/trials/0000-learning_rate=0.001 {run}/trials/0002-learning_rate=0.03",
    "config schema {run}/base.json",
    "pipeline status " + whole_run.PIPELINE + " --cfg.root={root}",
)
_DEAR = (
    "sweep --resume={run} --dry-run",
    "sweep --resume={search} --dry-run",
    "sweep --resume={run} --retry-failed --dry-run",
    "eval {run} --step=latest --no-tracking",
    "eval {run} --step=all --no-tracking",
    "eval {run}/trials/0002-learning_rate=0.03 --step=2 --no-tracking",
    "ckpt export {run} --trial=0 --to={root}/exported",
    "config validate {run}/trials/0002-learning_rate=0.03/config.json",
)
_RARE = ("record {run}",)
_STATUSES = (0, 1, 2)
_CONTROL = {*map(chr, range(32)), "\x7f", "\u202e"} - {"\n", "\t", "\r"}

_seen: list[str] = []


def _watch(event: str, args: tuple[object, ...]) -> None:
    if event == "os.system":
        _seen.append(f"{event} {args}")


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs as they should be."""
    root = tmp_path_factory.mktemp("whole") / "runs"
    root.mkdir()
    whole_run.make(root)
    return root


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder beside the runs that must stay as it is, with a module that can be imported and must not be."""
    folder = tmp_path / "outside"
    (folder / "precious").mkdir(parents=True)
    (folder / "precious" / "file").write_text("precious")
    (folder / f"{mutations.CANARY}.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    if not _seen:
        sys.addaudithook(_watch)
        _seen.append("watching")
    yield folder
    sys.modules.pop(mutations.CANARY, None)


def _snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in sorted(folder.rglob("*"))}


def _check(whole: Path, outside: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs some commands on a copy of the runs with a mutation or two."""
    rng = random.Random(seed)
    root = outside.parent / f"runs-{seed}"  # A name of its own: MLflow keeps stores open.
    before, seen = _snapshot(outside), len(_seen)
    cheap = rng.sample(_CHEAP, 3)
    dear = rng.sample(_DEAR, 1) if seed % 6 == 0 else []
    rare = list(_RARE) if seed % 100 == 57 else []
    shutil.copytree(whole, root)
    try:
        done = [mutations.mutate(root, outside, rng) for _ in range(rng.choice((1, 1, 2)))]
        for form in [*sorted(cheap, key=lambda form: form.startswith("rm ")), *dear, *rare]:
            words = [word.format(run=root / "demo", search=root / "search", root=root) for word in form.split()]
            status = main(words)
            told = capsys.readouterr()
            told_shortly = f"{told.out[-500:]}\n{told.err[-3000:]}"
            context = f"seed {seed}: {'; '.join(done)}: kdr {' '.join(words)}: {status}\n{told_shortly}"
            assert status in _STATUSES, context
            assert "Traceback" not in told.err and "not foreseen" not in told.err, context
            assert told.err.count("error: ") == (1 if status == 2 else told.err.count("error: ")), context
            assert not _CONTROL & {*told.out, *told.err}, context
            assert _snapshot(outside) == before, context
            assert mutations.CANARY not in sys.modules and len(_seen) == seen, context
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_hundred_mutated_runs_are_harmless(whole: Path, outside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F42, F43, F44, F46, F47, F51, F52: nothing runs, nothing outside changes, nothing reaches the terminal."""
    for seed in range(100):
        _check(whole, outside, seed, capsys)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_ten_thousand_mutated_runs_are_harmless(whole: Path, outside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F42, F43, F44, F46, F47, F51, F52: as above, from the seed 1,000 on."""
    for seed in range(1_000, 1_000 + int(os.environ.get("MUTATIONS", "10000"))):
        _check(whole, outside, seed, capsys)
