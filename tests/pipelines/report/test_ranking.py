"""What ranks the trials of a run, for whoever only reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError
from kauldron_core.rundir import Directions, Ranking
from pipelines.configs import digits
from pipelines.report import directions_of_run, ranking_of, sources_of

NAMES = {
    f"{split}/{name}" for split in ("val", "test", "ema", "train") for name in ("losses/total", "metrics/accuracy")
}
KEPT = Ranking("val/losses/total", "min", "evaluator")


def make_run(path: Path, *, best_metric: str | None = None, **sweep: Any) -> rundir.RunDir:
    """Returns a run of an experiment with `val` in training, and `test`, whose name comes first, beside it."""
    run = rundir.RunDir.create(path / "run", sweep)
    config = digits.get_config()
    config.evals.val = {**config.evals.test, "run": {"__qualname__": "kauldron_core.kd:evals.EveryNSteps", "n": 100}}
    config.checkpointer.best_metric = best_metric
    run.trial("0000").create(konfig.to_json(config))
    return run


def test_what_the_run_has_kept_ranks_it_whatever_was_added_since(tmp_path: Path) -> None:
    """F02: an evaluator of a later `kdr eval`, or a test split whose name sorts first, changes nothing."""
    run = make_run(tmp_path, ranking=KEPT.to_json())
    assert ranking_of(run, NAMES, directions=Directions()) == KEPT


def test_a_run_of_an_earlier_version_is_ranked_by_the_same_rule(tmp_path: Path) -> None:
    """F02: it has kept nothing; its config says which evaluator runs in training."""
    run = make_run(tmp_path)
    assert ranking_of(run, NAMES, directions=Directions()) == KEPT
    assert ranking_of(run, {"train/losses/total", "test/losses/total"}, directions=Directions()) == Ranking(
        "train/losses/total", "min", "training"
    )
    assert ranking_of(run, set(), directions=Directions()) is None
    kept_by = make_run(tmp_path / "other", best_metric="test/losses/total")
    assert ranking_of(kept_by, NAMES, directions=Directions()) == Ranking(
        "test/losses/total", "min", "checkpointer.best_metric"
    )


def test_what_is_asked_for_wins(tmp_path: Path) -> None:
    run = make_run(tmp_path, ranking=KEPT.to_json(), directions={"test/metrics/accuracy": "higher"})
    directions = directions_of_run(run)
    assert ranking_of(run, NAMES, directions=directions, metric="test/metrics/accuracy") == Ranking(
        "test/metrics/accuracy", "max"
    )
    with pytest.raises(ConfigError, match=r"unknown metric 'test/metrics/acuracy'\. Did you mean"):
        ranking_of(run, NAMES, directions=directions, metric="test/metrics/acuracy")
    with pytest.raises(ConfigError, match="--mode: unset, and nothing says whether more or less of 'val/metrics/acc"):
        ranking_of(run, NAMES, directions=directions, metric="val/metrics/accuracy")


def test_records_say_the_direction_of_evaluators_that_were_added(tmp_path: Path) -> None:
    run = make_run(tmp_path, ranking=KEPT.to_json(), directions={"val/metrics/accuracy": "higher"})
    record = {"status": "done", "values": {"metrics/bpc": 1.0}, "better": {"metrics/bpc": "lower"}}
    rundir.write_eval_result(run.trial("0000"), "ema", 10, record)
    assert directions_of_run(run).known == {"val/metrics/accuracy": "higher", "ema/metrics/bpc": "lower"}


def test_sources_are_the_evaluators() -> None:
    assert sources_of([*NAMES, "train/perf/steps_per_s", "x"]) == ["ema", "test", "val"]
