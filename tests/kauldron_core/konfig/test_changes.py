"""Changes between configs, and a config with its changes marked."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kauldron_core import konfig
from kauldron_core.konfig.showing.changes import change_texts, pretty_diff, value_changes
from kauldron_core.konfig.showing.printing import pretty
from kauldron_core.konfig.tree.comparing import Change

with konfig.imports():
    import jax.numpy as jnp
    import optax


@pytest.fixture
def base() -> konfig.ConfigDict:
    cfg = konfig.ConfigDict({"seed": 0, "layers": [8, 16], "pair": (1, 2), "table": {"a": 1}, "kind": jnp.float32})
    cfg.optimizer = optax.adam(learning_rate=1e-3)
    cfg.steps = cfg.ref.seed + 1
    return cfg


def changed(base: Any, *overrides: str) -> konfig.ConfigDict:
    cfg = copy.deepcopy(base)
    konfig.apply_overrides(cfg, overrides)
    return cfg


def marks(base: Any, *overrides: str) -> list[str]:
    return [line.strip() for line in pretty_diff(changed(base, *overrides), base).splitlines() if "#" in line]


def test_no_change_no_mark(base: Any) -> None:
    assert pretty_diff(base, base) == pretty(base)


@pytest.mark.parametrize(
    ("override", "lines"),
    [
        ("layers[1]=32", ["'layers': [8, 32],  # was 16"]),
        ("layers=[1]", ["'layers': [1],  # was 8", "# removed: layers[1] (was 16)"]),
        ("pair[0]=9", ["'pair': (9, 2),  # was 1"]),
        ("table.a=2", ["'table': {'a': 2},  # was 1"]),
        ("table={}", ["'table': {},  # was {'a': 1}"]),
        ("kind=jnp.bfloat16", ["'kind': jnp.bfloat16,  # was jnp.float32"]),
        ("optimizer.learning_rate=1", ["'optimizer': optax.adam(learning_rate=1.0),  # was 0.001"]),
        ("optimizer.b1=0.5", ["'optimizer': optax.adam(learning_rate=0.001, b1=0.5),  # new"]),
        ("seed=4", ["'seed': 4,  # was 0", "'steps': cfg.ref.seed + 1,  # was 1"]),
        ("steps=4", ["'steps': 4,  # was 1"]),
    ],
)
def test_changed_lines_say_what_was_there(base: Any, override: str, lines: list[str]) -> None:
    assert marks(base, override) == lines


def test_marking_changes_nothing(base: Any) -> None:
    cfg = changed(base, "layers[1]=32", "optimizer=optax.sgd(0.1)")
    before = konfig.to_json(cfg)
    pretty_diff(cfg, base)
    assert konfig.to_json(cfg) == before


def test_what_became_a_tree_or_was_one_is_one_change(base: Any) -> None:
    base.table.b = None
    assert value_changes(base, changed(base, "table.b={'x': {'y': 1}, 'z': 2}")) == [
        Change("table.b", None, konfig.ConfigDict({"x": {"y": 1}, "z": 2}))
    ]
    assert [change_texts(change) for change in value_changes(base, changed(base, "table=None"))] == [
        ("table", "{'a': 1, 'b': None}", "None")
    ]


def test_another_target_is_a_change_of_the_call(base: Any) -> None:
    found = value_changes(base, changed(base, "optimizer=optax.sgd(0.1)"))
    assert [change_texts(change) for change in found] == [
        ("optimizer", "optax.adam", "optax.sgd"),
        ("optimizer.learning_rate", "0.001", "(not there)"),
        ("optimizer[0]", "(not there)", "0.1"),
    ]
