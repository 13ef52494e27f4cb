"""Which metric tells the best trial."""

import pytest

from pipelines.report import Ranking, choose_ranking

TEST = ("test/losses/total", "test/losses/xent", "test/metrics/accuracy")
VAL = ("val/losses/total", "val/metrics/top5_accuracy")
TRAIN = ("train/losses/total", "train/metrics/accuracy")


@pytest.mark.parametrize(
    ("names", "evaluators", "expected"),
    [
        (TEST + TRAIN, ("test",), Ranking("test/metrics/accuracy", "max")),
        (TEST + VAL + TRAIN, ("val", "test"), Ranking("val/metrics/top5_accuracy", "max")),
        (("test/losses/total", "test/metrics/std"), ("test",), Ranking("test/losses/total", "min")),
        (TRAIN, ("test",), Ranking("train/metrics/accuracy", "max")),
        (("train/losses/total",), (), Ranking("train/losses/total", "min")),
        (("test/metrics/roc_auc", "test/losses/total"), ("test",), Ranking("test/metrics/roc_auc", "max")),
        ((), ("test",), None),
    ],
)
def test_the_rule_of_the_docstring(names: tuple[str, ...], evaluators: tuple[str, ...], expected: Ranking) -> None:
    assert choose_ranking(names, evaluators=evaluators) == expected


def test_what_the_user_asks_for_wins() -> None:
    asked = choose_ranking(TEST, evaluators=("test",), metric="train/losses/total", mode="min")
    assert asked == Ranking("train/losses/total", "min")
