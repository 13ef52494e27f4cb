"""The table of ratios: what is committed is read as it was written, and what got slower is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import quick

FOUND = [
    quick.Ratio("step, mlp", "jax.jit loop", (1.0, 1.1, 1.2)),
    quick.Ratio("import kd", "jax, flax, optax", (1.5,)),
]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "results.md"
    monkeypatch.setattr(quick, "RESULTS", path)
    return path


def test_committed_ratios_are_read_as_they_were_written(results: Path) -> None:
    assert quick.committed() == {}
    quick.write(FOUND)
    assert quick.committed() == {"step, mlp": 1.1, "import kd": 1.5}


@pytest.mark.parametrize(
    ("rounds", "is_slower"),
    [((1.0, 1.1, 1.2), False), ((1.2, 1.25, 1.3), True), ((0.9, 1.3, 1.4), False), ((0.5,), False)],
    ids=["as fast", "slower in every round", "within its spread", "faster"],
)
def test_slower_is_more_than_the_margin_and_the_spread(rounds: tuple[float, ...], is_slower: bool) -> None:
    assert quick.Ratio("step", "loop", rounds).is_slower_than(1.0) is is_slower


def test_the_committed_table_names_measurements_once() -> None:
    rows = [line for line in quick.RESULTS.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) - 1 == len(quick.committed()) > 20


def test_an_unknown_measurement_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["quick", "--only=stepp"])
    with pytest.raises(SystemExit, match="2"):
        quick.main()
    assert "--only: unknown measurement 'stepp'. Available: step, " in capsys.readouterr().err
