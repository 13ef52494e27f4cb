"""`kdr submit` before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.submit import entrypoint
from ray_cluster.cluster import preflight

DIGITS = "pipelines/configs/digits.py"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], "the command is missing"),
        (["swep", DIGITS], "Did you mean 'sweep'?"),
        (["sweep", DIGITS], "--run.root=/shared/runs"),
        (["sweep", DIGITS, "--run.root=out/mine"], "--run.root=/shared/mine"),
        (["pipeline", "run", "pipelines/configs/digits_pipeline.py"], "--cfg.root=/shared/runs"),
        (["sweep", "pipelines/configs/digit.py", "--run.root=/shared/runs"], "there is no such file"),
        (["sweep", DIGITS, "--run.root=/shared/runs"], "--address: the cluster's job server is missing"),
    ],
)
def test_what_could_only_fail_on_the_cluster_is_refused(
    words: list[str], fault: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    assert main(["submit", *words]) == 2
    assert fault in capsys.readouterr().err


def test_an_address_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "--address=head:6379", "sweep", DIGITS, "--run.root=/shared/runs"]) == 2
    assert "Example: http://127.0.0.1:8265" in capsys.readouterr().err


def test_dry_run_shows_what_would_be_sent(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", f"{DIGITS}", "--sweep.seed=[1, 2]", "--run.root=/shared/runs"]
    assert main(["submit", "--dry-run", *words]) == 0
    out = capsys.readouterr().out
    assert ".env" in out
    assert "python -m pipelines.preflight --root=/shared/runs && python -m pipelines.sweep" in out
    assert "'--sweep.seed=[1, 2]'" in out


def test_a_run_that_goes_on_brings_its_own_root() -> None:
    words = ["sweep", "--resume=/shared/runs/demo"]
    assert entrypoint(words, preflight=True) == "python -m pipelines.sweep --resume=/shared/runs/demo"


def test_preflight_needs_a_cluster(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert main(["preflight", "--root=/tmp"]) == 2
    assert "a cluster is needed" in capsys.readouterr().err


def test_a_node_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    found = preflight.describe_node(str(tmp_path), "not what is there", "tpu", 1e9)
    faults = " | ".join(found["faults"])
    assert "GB free at" in faults
    assert "JAX runs on cpu, and the node has a tpu" in faults
    assert str(tmp_path) in faults
