"""`DecodeEvaluator`: every example decoded once, compared with its target, kept as a row."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

import evaluators
from evaluators import decode
from kauldron_core import kd, kontext
from kauldron_core.errors import ConfigError
from kauldron_core.evals import Collected, Final
from tests.evaluators.decode.tiny_lm import TinyCachedLM, state_of

MODEL = TinyCachedLM(shift="batch.shift")
STATE = state_of(MODEL, seed=3)
SIZE = 7
DECODER = decode.Sample(max_len=4, num_samples=2, seed=1)


@functools.cache
def examples() -> dict[str, np.ndarray]:
    """Returns examples whose targets are what the model says, but for every third."""
    shift = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    batch = {"decoder_input_tokens": np.zeros((SIZE, 4), np.int32), "shift": shift}
    said = np.asarray(decode.DecodeProgram(MODEL, DECODER)(STATE, batch).tokens)[:, 0]
    targets = np.pad(said, ((0, 0), (0, 2)))
    targets[2::3, 0] = 5 - targets[2::3, 0]
    return {**batch, "targets": targets}


@functools.cache
def evaluator() -> evaluators.DecodeEvaluator:
    ds = kd.data.InMemoryPipeline(loader=examples, batch_size=4)
    return evaluators.DecodeEvaluator(run=Final(), decoder=DECODER, ds=ds, model=MODEL, target="batch.targets")


def test_every_example_is_decoded_once_and_compared() -> None:
    result = evaluator().evaluate(STATE)
    assert result.num_examples == SIZE
    assert result.values["metrics/exact_match"] == 5 / 7
    rows = result.examples or []
    assert [(row["id"], row["rank"]) for row in rows] == [(i, rank) for i in range(SIZE) for rank in (0, 1)]
    firsts = rows[::2]
    assert result.values["metrics/length"] == np.mean([len(row["tokens"]) for row in firsts])
    assert result.values["metrics/score"] == pytest.approx(np.mean([row["score"] for row in firsts]), rel=1e-6)


def test_shares_say_the_same() -> None:
    whole = evaluator()
    shares = [whole.collect(STATE, shard_index=index, shard_count=2) for index in range(2)]
    merged = whole.result(functools.reduce(Collected.merge, shares), step=0, seconds=1.0)
    assert merged.values == pytest.approx(whole.evaluate(STATE).values)
    assert merged.examples == whole.evaluate(STATE).examples


def test_without_data_it_says_so() -> None:
    with pytest.raises(ConfigError, match=r"evals\.eval\.ds: unset"):
        evaluators.DecodeEvaluator(run=Final(), decoder=DECODER, model=MODEL).evaluate(STATE)


@pytest.mark.parametrize(
    "fields", [{"target": "batch.target"}, {"decoder": dataclasses.replace(DECODER, prompt="batch.promt")}], ids=str
)
def test_a_miss_is_found_with_shapes(fields: dict[str, Any]) -> None:
    """F08: a key that leads nowhere was met at the first evaluation only."""
    shapes = jax.eval_shape(lambda: STATE)
    evaluator().trace(shapes)
    with pytest.raises(kontext.PathLookupError, match=r"batch\.(target|promt)"):
        dataclasses.replace(evaluator(), **fields).trace(shapes)
