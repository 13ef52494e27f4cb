"""Which metric ranks and which end of it is the good one: the rule, and what is read of a run's files."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from kauldron_core.errors import ConfigError
from kauldron_core.rundir import Directions, Ranking, choose_ranking, read_ranking

KNOWN = Directions({"val/metrics/accuracy": "higher", "val/metrics/ppl": "lower"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"metric": "val/metrics/ppl"}, Ranking("val/metrics/ppl", "min", "run.metric")),
        ({"metric": "val/metrics/accuracy"}, Ranking("val/metrics/accuracy", "max", "run.metric")),
        ({"metric": "own/bpc", "mode": "min"}, Ranking("own/bpc", "min", "run.metric")),
        (
            {"best_metric": "val/metrics/accuracy"},
            Ranking("val/metrics/accuracy", "max", "checkpointer.best_metric"),
        ),
        ({}, Ranking("val/losses/total", "min", "evaluator")),
        ({"evaluators": ()}, Ranking("train/losses/total", "min", "training")),
    ],
)
def test_one_rule_ranks(given: dict[str, Any], expected: Ranking) -> None:
    """F02: run.metric, else checkpointer.best_metric, else the loss of the evaluator in training, else of training."""
    assert choose_ranking(KNOWN, **{"evaluators": ("val", "aardvark"), **given}) == expected


def test_what_nothing_says_is_one_line() -> None:
    with pytest.raises(
        ConfigError, match=r"^--run\.mode: unset, and nothing says whether more or less of 'test/metrics/"
    ):
        choose_ranking(KNOWN, metric="test/metrics/bpc")
    with pytest.raises(ConfigError, match=r"^checkpointer\.mode: unset"):
        choose_ranking(KNOWN, best_metric="test/metrics/bpc")
    with pytest.raises(ConfigError, match=r"--mode: unknown mode 'least'"):
        KNOWN.mode("val/metrics/ppl", "least", at="--mode")


def test_a_mode_against_better_knowledge_is_obeyed_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """F01: whoever says max of a loss gets it, and a line."""
    with caplog.at_level(logging.WARNING):
        assert KNOWN.mode("val/losses/contrary", "max", at="--mode") == "max"
        assert KNOWN.mode("val/metrics/ppl", "min", at="--mode") == "min"
    assert [record.message for record in caplog.records] == [
        "--mode=max: is taken, though of val/losses/contrary lower is better."
    ]


def test_nothing_that_is_no_number_is_best() -> None:
    ranking = Ranking("val/losses/total", "min")
    values = {"nan": math.nan, "none": None, "diverged": -math.inf, "good": 0.5, "bad": 2.0}
    ranked = sorted(values, key=lambda name: ranking.badness(values[name]))
    assert ranked[:2] == ["good", "bad"]
    assert Ranking("x", "max").badness(math.inf) > Ranking("x", "max").badness(-3.0)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "max",
        [],
        {"metric": "a/b"},
        {"metric": "", "mode": "min", "reason": "asked"},
        {"metric": ["a"], "mode": "min", "reason": "asked"},
        {"metric": "a/b", "mode": ["min"], "reason": "asked"},
        {"metric": "a/b", "mode": "min", "reason": "because"},
        {"metric": "a" * 10_000, "mode": "min", "reason": "asked"},
    ],
)
def test_a_file_that_says_nonsense_says_nothing(content: Any) -> None:
    assert read_ranking({"ranking": content}) is None
    assert Directions.read(content).known == {}


def test_directions_of_a_file_are_checked_one_by_one() -> None:
    content = {"a/metrics/b": "higher", "c": "up", "d": ["lower"], 5: "lower", "e" * 10_000: "lower"}
    assert Directions.read(content).known == {"a/metrics/b": "higher"}


def test_what_a_run_keeps_is_read_back() -> None:
    ranking = choose_ranking(KNOWN, metric="val/metrics/ppl")
    sweep = {"ranking": ranking.to_json(), "directions": dict(KNOWN.known)}
    assert read_ranking(sweep) == ranking
    assert read_ranking(sweep, metric="val/metrics/accuracy") == Ranking("val/metrics/accuracy", "max")
    assert read_ranking(sweep, mode="max") == Ranking("val/metrics/ppl", "max")
    with pytest.raises(ConfigError, match="--mode: unset"):
        read_ranking(sweep, metric="val/metrics/other")


def test_a_run_of_an_earlier_version_tells_losses_by_their_name() -> None:
    """F01: `max` stood there also where nobody had said so; a loss is taken by its name, all else needs a mode."""
    assert read_ranking({"metric": "val/losses/total", "mode": "max"}) == Ranking("val/losses/total", "min")
    assert read_ranking({"metric": "val/metrics/bpc", "mode": "min"}) == Ranking("val/metrics/bpc", "min")
    assert read_ranking({"metric": None, "mode": "max"}) is None
    old = {"metric": "val/metrics/bpc", "mode": "max"}
    assert read_ranking(old, mode="max") == Ranking("val/metrics/bpc", "max")
    with pytest.raises(ConfigError, match="--mode: unset"):
        read_ranking(old)


def test_a_record_says_it_of_an_evaluator_that_was_added_later() -> None:
    record = {"better": {"metrics/bpc": "lower", "metrics/odd": 3}}
    assert KNOWN.with_record("ema", record).of("ema/metrics/bpc") == "lower"
    assert KNOWN.with_record("val", {"better": {"metrics/ppl": "higher"}}) == KNOWN, "what the run says stays"
