"""Results rank trials and know whether everything that was asked for is there."""

import math

import pytest

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from ray_cluster import Results, TrialResult, collect
from ray_cluster.spec import PlannedTrial


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
    row = collect._read_trial(trial, PlannedTrial(name="0000", index=0, fingerprint="", config_json="{}"))
    assert (row.step, row.values["test/losses/total"]) == (60, 0.1)
