"""Results rank trials and know whether everything that was asked for is there."""

import math

import pytest

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from ray_cluster import Results, TrialResult
from ray_cluster.driver import collect
from ray_cluster.spec import Plan, PlannedTrial, Sweep


def _row(index: int, status: str = "done", **values: float) -> TrialResult:
    return TrialResult(name=f"{index:04d}", index=index, status=status, values=values)


def _results(*rows: TrialResult, **fields) -> Results:
    return Results(run_dir="runs/a", rows=rows, **fields)


def test_best_takes_the_last_values_and_skips_missing_and_nan():
    results = _results(_row(0, accuracy=0.9), _row(1, accuracy=math.nan), _row(2), _row(3, accuracy=0.95))
    assert results.best("accuracy", "max").name == "0003"
    assert results.best("accuracy", "min").name == "0000"
    assert [row.index for row in results.ranked("accuracy", "max")] == [3, 0, 1, 2]


def test_the_direction_is_that_of_the_metric():
    """F01: a loss is best when lowest, a metric as the run says, and what nothing says needs a mode."""
    directions = rundir.Directions({"test/metrics/ppl": "lower", "test/metrics/accuracy": "higher"})
    values = {"test/losses/total": 1.0, "test/metrics/ppl": 9.0, "test/metrics/accuracy": 0.1, "test/metrics/bpc": 1.0}
    rows = [_row(index, **{name: value * (1 + index) for name, value in values.items()}) for index in range(2)]
    results = _results(*rows, directions=directions)
    assert results.best("test/losses/total").index == 0
    assert results.best("test/metrics/ppl").index == 0
    assert results.best("test/metrics/accuracy").index == 1
    assert [row.index for row in results.ranked("test/metrics/ppl", "max")] == [1, 0]
    with pytest.raises(ConfigError, match="mode: unset, and nothing says whether more or less of 'test/metrics/bpc'"):
        results.best("test/metrics/bpc")


def test_what_ranks_the_run_ranks_its_results():
    """F02: nothing has to be said twice."""
    ranking = rundir.Ranking("val/losses/total", "min", "evaluator")
    rows = [_row(0, **{"val/losses/total": 2.0}), _row(1, **{"val/losses/total": 1.0, "a/metrics/b": 3.0}), _row(2)]
    results = _results(*rows, ranking=ranking)
    assert results.best().index == 1
    assert [row.index for row in results.ranked()] == [1, 0, 2]
    with pytest.raises(ConfigError, match="results: say by which metric"):
        _results(*rows).best()


def test_no_number_is_no_best():
    results = _results(_row(0, loss=math.nan), _row(1, loss=-math.inf), _row(2))
    with pytest.raises(ConfigError, match="no trial has a finite 'loss'"):
        results.best("loss", "min")


def test_ties_keep_the_order_of_the_sweep():
    results = _results(_row(1, accuracy=0.9), _row(0, accuracy=0.9))
    assert results.best("accuracy", "max").index == 0


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


def test_seeds_are_grouped_with_mean_deviation_and_number():
    rows = [
        TrialResult(
            name=f"{index:04d}",
            index=index,
            status="done",
            overrides=(("hidden", hidden), ("seed", seed)),
            values={} if value is None else {"a": value},
        )
        for index, (hidden, seed, value) in enumerate(
            [(8, 0, 1.0), (8, 1, 2.0), (8, 2, 6.0), (16, 0, 4.0), (16, 1, math.nan), (32, 0, None)]
        )
    ]
    results = Results(run_dir="r", rows=tuple(rows), group_path="seed")
    assert [group.name for group in results.groups] == ["hidden=8", "hidden=16", "hidden=32"]
    first, second, third = (group.statistics("a") for group in results.groups)
    assert (first.mean, first.n) == (3.0, 3)
    assert first.std == pytest.approx(math.sqrt(7))
    assert (second.mean, second.n) == (4.0, 1)
    assert math.isnan(second.std)
    assert third.n == 0
    assert [group.name for group in results.ranked_groups("a", "max")] == ["hidden=16", "hidden=8", "hidden=32"]
    assert [group.name for group in results.ranked_groups("a", "min")] == ["hidden=8", "hidden=16", "hidden=32"]


def test_equal_trials_are_no_seeds():
    """F18: a repeat is neither a seed nor part of a mean."""

    def results(points, group_path):
        rows = [
            TrialResult(name=f"{at:04d}", index=at, status="done", overrides=point, values={"a": 1.0})
            for at, point in enumerate(points)
        ]
        return Results(run_dir="r", rows=tuple(rows), group_path=group_path)

    alone = results([(("rate", 0.1),), (("rate", 0.3),), (("rate", 0.1),)], None)
    assert [len(group.rows) for group in alone.groups] == [1, 1, 1]
    assert alone.repeats == {"0002": "0000"}
    points = [(("rate", 0.1), ("seed", seed)) for seed in (0, 1, 0)]
    assert [len(group.rows) for group in results(points, "seed").groups] == [2, 1]


def test_results_as_a_table():
    row = TrialResult(name="0000", index=0, status="done", overrides=(("lr", 0.1),), values={"a": 1.0})
    table = Results(run_dir="r", rows=(row,)).to_pandas()
    assert table.loc[0, "cfg.lr"] == 0.1
    assert table.loc[0, "a"] == 1.0


def test_an_old_checkpoint_that_is_looked_at_again_changes_no_final_metric(tmp_path):
    run = rundir.RunDir.create(tmp_path / "run", {})
    trial = run.trial("0000").create("{}")
    log = rundir.EventWriter(trial.events)
    for step, loss in ((20, 0.5), (60, 0.1)):
        log.append("evaluated", step, split="test", values={"losses/total": loss})
    log.close()
    rundir.write_eval_result(trial, "test", 20, {"status": "done", "values": {"losses/total": 0.5}})
    planned = PlannedTrial(name="0000", index=0, fingerprint="", config_json="{}")
    (row,) = collect.collect(Plan(sweep=Sweep(), run_dir=str(run.path), trials=(planned,)), run).rows
    assert (row.step, row.values["test/losses/total"]) == (60, 0.1)
