"""Results rank trials and know whether everything that was asked for is there."""

import math

import pytest

from kauldron_core.errors import ConfigError
from ray_cluster import Results, TrialResult


def _row(index: int, status: str = "done", **values: float) -> TrialResult:
    return TrialResult(name=f"{index:04d}", index=index, status=status, values=values)


def _results(*rows: TrialResult, **fields) -> Results:
    return Results(run_dir="runs/a", rows=rows, **fields)


def test_best_takes_the_last_values_and_skips_missing_and_nan():
    results = _results(_row(0, accuracy=0.9), _row(1, accuracy=math.nan), _row(2), _row(3, accuracy=0.95))
    assert results.best("accuracy").name == "0003"
    assert results.best("accuracy", "min").name == "0000"
    assert [row.index for row in results.ranked("accuracy")] == [3, 0, 1, 2]


def test_ties_keep_the_order_of_the_sweep():
    results = _results(_row(1, accuracy=0.9), _row(0, accuracy=0.9))
    assert results.best("accuracy").index == 0


def test_an_unknown_metric_names_the_closest():
    with pytest.raises(ConfigError, match=r"unknown metric 'acuracy'. Did you mean 'accuracy'\?"):
        _results(_row(0, accuracy=0.9)).best("acuracy")


@pytest.mark.parametrize("status", ["done", "diverged", "pruned", "stopped"])
def test_these_endings_are_results(status):
    assert _results(_row(0, status)).ok


@pytest.mark.parametrize("status", ["failed", "preempted", "queued", "running"])
def test_these_endings_are_not(status):
    assert not _results(_row(0), _row(1, status)).ok


def test_a_failed_or_missing_evaluation_is_not_ok():
    failed = TrialResult(name="0000", index=0, status="done", failed_evaluations=(("test", 100, "no such file"),))
    assert not _results(failed).ok
    assert not _results(_row(0), pending_evaluations=(("0000", "test", 200),)).ok
