"""JSON that every reader takes, with NaN and infinities in it."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron_core import ckpts, konfig, rundir
from kauldron_core.errors import ConfigError
from kauldron_core.rundir import json_text

NUMBERS = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.5}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def read_strictly(text: str | bytes) -> Any:
    """Returns what a reader makes of JSON that has none of Python's own words."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)  # NaN is not equal to itself.


@given(JSON)
def test_what_is_written_is_strict_and_comes_back(value: Any):
    """F35: NaN was written as a bare word, for which strict readers refuse the whole file."""
    text = json_text.dumps(value)
    read_strictly(text)
    assert same(json_text.loads(text), value) and same(json_text.loads(text.encode()), value)
    assert same(json_text.loads(json.dumps(value)), value), "as older files have it"


def test_every_file_of_a_run_is_strict_json(tmp_path: pathlib.Path):
    """F35: events, records, statuses, tables, checkpoints and configs."""
    trial = rundir.TrialDir(tmp_path / "trial")
    trial.create(konfig.to_json(konfig.ConfigDict({"clip": math.inf, "pair": (math.nan, 1 + math.inf * 1j)})))
    with rundir.EventWriter(trial.events) as writer:
        writer.append("metrics", 1, split="train", values=NUMBERS)
    rundir.write_eval_result(trial, "test", 1, {"status": "done", "values": NUMBERS})
    rundir.write_status(trial, "failed", error="x", score=math.nan)
    checkpointer = ckpts.Checkpointer(workdir=trial.path)
    checkpointer.observe(1, "val", NUMBERS)
    checkpointer.save({"w": jnp.ones(2)}, {"last": math.inf}, step=1)
    checkpointer.close()
    texts = [path for path in trial.path.rglob("*") if path.is_file() and path.read_bytes()[:1] in (b"{", b"[")]
    assert len(texts) > 5
    for path in texts:
        for line in path.read_bytes().splitlines() if path.suffix == ".jsonl" else [path.read_bytes()]:
            read_strictly(line)
    (event,) = rundir.read_events(trial.events)
    assert same(event["values"], NUMBERS)
    assert same((rundir.read_eval_result(trial, "test", 1) or {})["values"], NUMBERS)
    assert math.isnan(rundir.read_status(trial)["score"])
    assert checkpointer.load({"w": jnp.ones(2)}).data_state == {"last": math.inf}
    cfg = konfig.load(trial.config_path)
    assert cfg.clip == math.inf and math.isnan(cfg.pair[0]) and cfg.pair[1].imag == math.inf


def test_a_config_that_an_older_version_wrote_is_the_same(tmp_path: pathlib.Path):
    """F35: a run whose config has an infinity goes on, though its file spells it otherwise."""
    text = konfig.to_json(konfig.ConfigDict({"clip": math.inf}))
    old = text.replace('{"__float__":"Infinity"}', "Infinity").replace('{"__float__": "Infinity"}', "Infinity")
    assert old != text
    trial = rundir.TrialDir(tmp_path / "trial").create(old)
    trial.create(text)
    with pytest.raises(ConfigError, match="another config"):
        trial.create(text.replace("Infinity", "-Infinity"))
