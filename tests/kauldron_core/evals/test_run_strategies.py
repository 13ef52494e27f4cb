"""When evaluators run."""

from __future__ import annotations

import re

import pytest

from kauldron_core.errors import ConfigError
from kauldron_core.evals import (
    EveryNCheckpoints,
    EveryNSteps,
    Final,
    Once,
    RunStrategy,
    StandaloneEveryCheckpoint,
    StandaloneLastCheckpoint,
)


@pytest.mark.parametrize(
    ("strategy", "steps"),
    [
        (EveryNSteps(30), [0, 30, 60, 90, 100]),
        (EveryNSteps(30, skip_first=True), [30, 60, 90, 100]),
        (EveryNSteps(25, skip_first=True), [25, 50, 75, 100]),
        (Once(40), [40]),
        (Once(0), [0]),
        (Final(), [100]),
        (StandaloneEveryCheckpoint(), []),
        (StandaloneLastCheckpoint(), []),
    ],
)
def test_steps_inside_training(strategy: RunStrategy, steps: list[int]) -> None:
    """E08: steps inside training."""
    assert [step for step in range(101) if strategy.should_run(step, step == 100)] == steps


@pytest.mark.parametrize(
    ("strategy", "during", "after"),
    [
        (StandaloneEveryCheckpoint(), [10, 20], [10, 20]),
        (StandaloneLastCheckpoint(), [], [20]),
        (EveryNCheckpoints(n=2), [20], [20]),
        (EveryNCheckpoints(n=3), [], [20]),
        (EveryNSteps(10), [], []),
    ],
)
def test_checkpoints_outside_of_training(strategy: RunStrategy, during: list[int], after: list[int]) -> None:
    assert strategy.due_steps([20, 10], False) == during
    assert strategy.due_steps([20, 10], True) == after
    assert strategy.due_steps([], True) == []
    assert strategy.is_standalone == bool(after)


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        EveryNSteps(0)
    with pytest.raises(ConfigError, match="at least 1"):
        EveryNCheckpoints(n=0)
    with pytest.raises(ConfigError, match="min_interval_s"):
        StandaloneEveryCheckpoint(min_interval_s=-1.0)
    with pytest.raises(ConfigError, match="StandaloneLastCheckpoint: max_pending"):
        StandaloneLastCheckpoint(max_pending=0)
    expected = "StandaloneEveryCheckpoint.when_behind: unknown choice 'skip_old'. Did you mean 'skip_oldest'?"
    with pytest.raises(ConfigError, match=re.escape(expected)):
        StandaloneEveryCheckpoint(when_behind="skip_old")  # pyright: ignore[reportArgumentType]
