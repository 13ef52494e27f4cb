"""Which values of a trial become points."""

import json
import math
from typing import Any

from pipelines.tracking.curves import Curves


def metrics(step: int, time_ms: int = 0, **values: Any) -> dict[str, Any]:
    return {"kind": "metrics", "split": "train", "step": step, "time_ms": time_ms, "values": values}


def test_training_and_evaluation_share_one_step_axis_and_keep_their_times() -> None:
    curves = Curves()
    trained = curves.add_event({**metrics(100, 5), "values": {"losses/total": 0.5}})
    evaluated = curves.add_evaluation(
        "test", 100, {"status": "done", "finished_ms": 9, "values": {"metrics/accuracy": 0.9}}
    )
    assert trained == [("train/losses/total", 0.5, 5, 100)]
    assert evaluated == [("test/metrics/accuracy", 0.9, 9, 100)]


def test_the_replay_after_a_rewind_is_left_out_and_marked() -> None:
    """L22: the replay after a rewind is left out and marked."""
    curves = Curves()
    first = [point for step in range(10, 130, 10) for point in curves.add_event(metrics(step, step, loss=1.0))]
    curves.add_event({"kind": "resumed_from", "step": 100, "time_ms": 500})
    again = [point for step in range(110, 150, 10) for point in curves.add_event(metrics(step, 500 + step, loss=1.0))]
    assert [point.step for point in first + again] == list(range(10, 150, 10))
    assert curves.tags["kdr.rewound"] == "to step 100"


def test_points_that_mlflow_has_already_are_not_given_again() -> None:
    curves = Curves({"train/loss": 20})
    assert [curves.add_event(metrics(step, loss=1.0)) for step in (10, 20)] == [[], []]
    assert [point.step for point in curves.add_event(metrics(30, loss=1.0))] == [30]


def test_an_infinity_is_nan_with_a_count() -> None:
    """L06: an infinity is nan with a count."""
    curves = Curves()
    points = curves.add_event(metrics(1, loss=math.inf)) + curves.add_event(metrics(2, loss=-math.inf))
    assert all(math.isnan(point.value) for point in points)
    assert curves.tags == {"kdr.infinite.train/loss": "2 points, the first inf at step 1"}


def test_the_count_is_the_same_after_a_restart() -> None:
    """L06: the count is the same after a restart."""
    curves = Curves({"train/loss": 2})
    assert curves.add_event(metrics(1, loss=math.inf)) + curves.add_event(metrics(2, loss=math.inf)) == []
    assert curves.tags == {"kdr.infinite.train/loss": "2 points, the first inf at step 1"}


def test_nan_is_a_point_and_what_is_no_number_is_not() -> None:
    """L08: nan is a point and what is no number is not."""
    curves = Curves()
    points = curves.add_event(metrics(1, good=1.0, nan=math.nan, none=None, text="high"))
    assert {point.key for point in points} == {"train/good", "train/nan"}
    assert curves.not_numbers == {"train/none", "train/text"}


def test_a_repeated_evaluation_is_a_second_point_with_a_mark() -> None:
    curves = Curves()
    record = {"status": "done", "finished_ms": 1, "values": {"metrics/accuracy": 0.5}}
    assert len(curves.add_evaluation("test", 100, record)) == 1
    assert curves.add_evaluation("test", 100, record) == []
    assert len(curves.add_evaluation("test", 100, {**record, "finished_ms": 2})) == 1
    assert curves.tags == {"kdr.evaluated_again": "test at step 100"}


def test_evaluations_may_finish_in_any_order() -> None:
    curves = Curves()
    record = {"status": "done", "finished_ms": 1, "values": {"metrics/accuracy": 0.5}}
    points = [point for step in (500, 100) for point in curves.add_evaluation("test", step, record)]
    assert [point.step for point in points] == [500, 100]
    assert curves.add_evaluation("test", 300, {"status": "failed", "finished_ms": 1, "error": "no"}) == []


def test_what_was_taken_over_from_another_trial_is_a_tag() -> None:
    curves = Curves()
    changes = {"optimizer.learning_rate": [0.1, 0.08]}
    assert curves.add_event({"kind": "inherited", "step": 40, "donor": "0001", "changes": changes}) == []
    assert curves.tags == {"kdr.inherited": "at step 40 from 0001: optimizer.learning_rate 0.1 -> 0.08"}


def test_a_metric_has_one_key_whatever_came_before_it() -> None:
    """F36: in another order in another trial `recall@5` had another key, and the curves of two trials did not meet."""
    names = ("recall@5", "recall_at_5", "a,b", "a=b")
    event = {"kind": "metrics", "split": "val", "step": 1, "time_ms": 1}
    found = []
    for order in (names, names[::-1]):
        curves = Curves()
        points = [curves.add_event({**event, "values": {name: 1.0}})[0] for name in order]
        found.append(dict(zip(order, (point.key for point in points), strict=True)))
        assert json.loads(curves.tags["kdr.names"])["val/recall_x40_5"] == "val/recall@5"
    assert found[0] == found[1] and len(set(found[0].values())) == 4
    assert found[0]["recall_at_5"] == "val/recall_at_5"
