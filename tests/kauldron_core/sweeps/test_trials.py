"""Trials: names, identities, and that each differs in what it says."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from kauldron_core import konfig, sweeps
from kauldron_core.errors import ConfigError
from kauldron_core.sweeps.trial_names import Namer, safe

with konfig.imports():
    import jax.numpy as jnp
    import optax


@pytest.fixture
def cfg() -> konfig.ConfigDict:
    cfg = konfig.ConfigDict({"seed": 0, "rate": 0.1, "name": "a", "layers": [1], "evals": {"a.b": {"every": 1}}})
    cfg.optimizer = optax.adam(learning_rate=1e-3)
    cfg.steps = cfg.ref.seed * 10
    return cfg


def expand(cfg: Any, *texts: str, **options: Any) -> list[sweeps.Trial]:
    return sweeps.expand(cfg, sweeps.from_strings(cfg, texts), **options)


def test_every_trial_has_its_own_value(cfg: Any) -> None:
    """S12: every trial has its own value."""
    trials = expand(cfg, "optimizer.learning_rate=[0.1, 0.2, 0.3]")
    assert [trial.config(cfg).optimizer.learning_rate for trial in trials] == [0.1, 0.2, 0.3]
    assert cfg.optimizer.learning_rate == 1e-3
    for path in ("optimizer.learning_rat", "learning_rate", "optimizer.b3"):
        with pytest.raises(ConfigError, match="unknown key"):
            sweeps.expand(cfg, [sweeps.axis(path, [1, 2])])


def test_a_sweep_without_axes_is_one_trial(cfg: Any) -> None:
    (trial,) = sweeps.expand(cfg, [])
    assert (trial.index, trial.name, trial.overrides) == (0, "0000", ())
    assert trial.config(cfg) == cfg


def test_names(cfg: Any) -> None:
    def first(*texts: str) -> str:
        return expand(cfg, *texts)[0].name

    assert first("rate=[0.01]") == "0000-rate=0.01"
    assert first("optimizer.learning_rate=[1e-3]") == "0000-learning_rate=0.001"
    assert first("optimizer=[optax.sgd(0.1)]") == "0000-optimizer=sgd"
    assert first("layers=[[1, 2]]") == "0000-layers=1-2"
    assert first("name=['../../etc/passwd']") == "0000-name=etc-passwd"
    assert first("name=['a b/c:d*?']") == "0000-name=a-b-c-d"
    assert first("name=['']") == "0000-name=-"
    assert first("rate=[-1]") == "0000-rate=-1"
    assert first("evals['a.b'].every=[2]") == "0000-every=2"
    assert first("seed=[1]", "optimizer.learning_rate=[1e-3]") == "0000-seed=1-learning_rate=0.001"


def test_paths_with_the_same_end_are_told_apart() -> None:
    cfg = konfig.ConfigDict({"a": {"rate": 1, "x": {"n": 1}}, "b": {"rate": 1, "x": {"n": 1}}})
    assert expand(cfg, "a.rate=[2]", "b.rate=[3]")[0].name == "0000-a.rate=2-b.rate=3"
    assert expand(cfg, "a.x.n=[2]", "b.x.n=[3]")[0].name == "0000-a.x.n=2-b.x.n=3"


def test_twenty_keys_with_long_names_give_short_unique_names() -> None:
    """U04: twenty keys with long names give short unique names."""
    cfg = konfig.ConfigDict({f"a_rather_long_name_{number}": "text" for number in range(20)})
    axes = [sweeps.axis(key, ["x" * 500, "y" * 500]) for key in cfg]
    trials = sweeps.expand(cfg, sweeps.zip_axes(*axes))
    assert len({trial.name for trial in trials}) == 2
    assert all(len(trial.name) <= 80 for trial in trials)


def test_the_number_has_as_many_digits_as_it_takes(cfg: Any) -> None:
    trials = sweeps.expand(cfg, [sweeps.axis("seed", range(10_001))])
    assert trials[0].name == "00000-seed=0"
    assert trials[-1].name == "10000-seed=10000"
    assert [trial.name for trial in trials] == sorted(trial.name for trial in trials)


def test_identities_do_not_depend_on_position_order_or_process(cfg: Any) -> None:
    one = expand(cfg, "seed=[1, 2]", "rate=[0.5]")
    other = expand(cfg, "rate=[0.5, 0.6]", "seed=[7, 2]")
    assert one[1].fingerprint == other[1].fingerprint
    assert [trial.fingerprint for trial in one] == [
        trial.fingerprint for trial in expand(cfg, "seed=[1, 2]", "rate=[0.5]")
    ]
    assert expand(cfg, "seed=[1]")[0].fingerprint == "f320f3f1a11370a1"


@pytest.mark.process
def test_identities_are_the_same_in_another_process() -> None:
    code = (
        "from kauldron_core import konfig, sweeps\n"
        "cfg = konfig.ConfigDict({'x': None})\n"
        "print([t.fingerprint for t in sweeps.expand(cfg, [sweeps.axis('x', [{'a', 'b', 'c'}, {'k': (1, 2.0)}])])])\n"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout


def test_values_of_other_types_are_other_identities() -> None:
    cfg = konfig.ConfigDict({"x": None})
    values = [
        1,
        1.0,
        True,
        "1",
        b"1",
        (1,),
        [1],
        {1},
        {"a": 1},
        None,
        0.0,
        -0.0,
        float("nan"),
        optax.sgd(1),
        optax.sgd(1.0),
    ]
    assert len({trial.fingerprint for trial in sweeps.expand(cfg, [sweeps.axis("x", values)])}) == len(values)


def test_the_same_trial_twice_is_refused(cfg: Any) -> None:
    with pytest.raises(ConfigError, match="trials 0 and 2 of the sweep are the same"):
        expand(cfg, "rate=[1, 2, 1.0]")
    with pytest.raises(ConfigError, match="trials 0 and 1 of the sweep are the same"):
        sweeps.expand(cfg, sweeps.from_points([{"seed": 1, "rate": 0.5}, {"rate": 0.5, "seed": 1}]))


def test_random_points_may_repeat_and_stay_apart(cfg: Any) -> None:
    trials = expand(cfg, "seed=randint(0, 2)", num_samples=6)
    assert len({trial.fingerprint for trial in trials}) == 6
    assert [trial.fingerprint for trial in trials[:3]] == [
        trial.fingerprint for trial in expand(cfg, "seed=randint(0, 2)", num_samples=3)
    ]


def test_more_samples_keep_the_trials_that_were_there(cfg: Any) -> None:
    few = expand(cfg, "rate=uniform(0, 1)", num_samples=3)
    many = expand(cfg, "rate=uniform(0, 1)", num_samples=9)
    assert [trial.fingerprint for trial in few] == [trial.fingerprint for trial in many[:3]]
    assert [trial.name for trial in few] == [trial.name for trial in many[:3]]


def test_values_are_checked_and_fitted(cfg: Any) -> None:
    (trial,) = sweeps.expand(cfg, [sweeps.axis("rate", [1])])
    assert type(trial.overrides[0][1]) is float
    with pytest.raises(ConfigError, match=r"--sweep\.seed: expected int, got the text 'x'"):
        sweeps.expand(cfg, [sweeps.axis("seed", [1, "x"])])
    with pytest.raises(ConfigError, match="got a function"):
        sweeps.expand(cfg, [sweeps.axis("optimizer", [lambda: 1])])


def test_values_are_what_a_config_would_store(cfg: Any) -> None:
    cfg.dtype = None
    trials = sweeps.expand(cfg, [sweeps.axis("dtype", [jnp.bfloat16, jnp.float32, {"a": (1,)}, copy.copy])])
    assert [trial.name for trial in trials] == [
        "0000-dtype=bfloat16",
        "0001-dtype=float32",
        "0002-dtype=a-1",
        "0003-dtype=copy",
    ]
    by_text = sweeps.expand(cfg, sweeps.from_strings(cfg, ["dtype=[jnp.bfloat16]"]))
    assert by_text[0].fingerprint == trials[0].fingerprint
    with pytest.raises(ConfigError, match=r"--sweep\.dtype: "):
        sweeps.expand(cfg, [sweeps.axis("dtype", [object()])])


def test_what_holds_another_comes_first(cfg: Any) -> None:
    point = {"optimizer.momentum": 0.9, "seed": 1, "optimizer": optax.sgd(0.1)}
    (trial,) = sweeps.expand(cfg, sweeps.from_points([point]))
    assert trial.config(cfg).optimizer == optax.sgd(0.1, momentum=0.9)


def test_trial_configs_share_nothing(cfg: Any) -> None:
    value = optax.sgd(0.1)
    trials = sweeps.expand(cfg, [sweeps.axis("optimizer", [value]), sweeps.axis("optimizer.momentum", [0.8, 0.9])])
    first, second = (trial.config(cfg) for trial in trials)
    assert (first.optimizer.momentum, second.optimizer.momentum) == (0.8, 0.9)
    first.optimizer.momentum = 0.5
    assert second.optimizer.momentum == 0.9
    assert "momentum" not in value
    assert cfg.optimizer == optax.adam(learning_rate=1e-3)


def test_configs_change_one_copy_in_place(cfg: Any) -> None:
    trials = expand(cfg, "seed=[1, 2]", "optimizer=[optax.sgd(0.1), optax.adam(0.2)]", "layers=[[3]]")
    before = konfig.to_json(cfg)
    texts = [konfig.to_json(trial_cfg) for _, trial_cfg in sweeps.configs(cfg, trials)]
    assert texts == [konfig.to_json(trial.config(cfg)) for trial in trials]
    assert konfig.to_json(cfg) == before


def test_references_follow_in_each_trial(cfg: Any) -> None:
    trials = expand(cfg, "seed=[1, 2]")
    assert [trial.config(cfg).steps for trial in trials] == [10, 20]
    text = konfig.to_json(trials[0].config(cfg))
    assert "__ref__" in text


def test_a_point_that_reaches_into_an_excluded_field_needs_a_reference() -> None:
    class Target:
        __konfig_resolve_exclude_fields__ = ("aux",)

        def __init__(self, x=0, aux=None) -> None:
            self.x = x

    module = sys.modules[__name__]
    module.Target = Target  # pyright: ignore[reportAttributeAccessIssue]
    cfg = konfig.ConfigDict({"__qualname__": f"{__name__}:Target", "aux": {"used": 1, "idle": 1}})
    cfg.x = cfg.ref.aux.used
    assert [trial.config(cfg).x for trial in sweeps.expand(cfg, [sweeps.axis("aux.used", [2, 3])])] == [2, 3]
    with pytest.raises(ConfigError, match=r"--sweep\.aux\.idle: .*nothing reads"):
        sweeps.expand(cfg, [sweeps.axis("aux.idle", [2, 3])])


@hypothesis.settings(deadline=None)
@hypothesis.given(st.text())
def test_any_text_is_a_safe_part_of_a_name(text: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._+=-]{1,20}", safe(text))
    assert not safe(text).startswith(".")


@hypothesis.settings(deadline=None)
@hypothesis.given(st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=3, unique=True), min_size=1, max_size=3))
def test_expanding_leaves_the_config_as_it_was(axes: list[list[int]]) -> None:
    cfg = konfig.ConfigDict({f"x{index}": 0 for index in range(len(axes))})
    cfg.y = cfg.ref.x0
    before = copy.deepcopy(cfg)
    trials = sweeps.expand(cfg, [sweeps.axis(f"x{index}", values) for index, values in enumerate(axes)])
    assert cfg == before
    for trial in trials:
        trial_cfg = trial.config(cfg)
        assert all(trial_cfg[path] == value for path, value in trial.overrides)
        assert trial_cfg.y == trial_cfg.x0


def test_values_of_numpy_are_plain_numbers_in_an_axis():
    """F34: `np.linspace` and `np.arange` as axes were refused, for their numbers are no floats and ints of Python."""
    cfg = konfig.ConfigDict({"rate": 0.1, "width": 3, "pair": (1, 2)})
    axes = [
        sweeps.axis("rate", np.linspace(0.01, 0.1, 2)),
        sweeps.from_points([{"width": np.int64(4), "pair": (np.int32(5), 6)}]),
    ]
    trials = sweeps.expand(cfg, axes)
    assert [dict(trial.overrides) for trial in trials] == [
        {"rate": rate, "width": 4, "pair": (5, 6)} for rate in (0.01, 0.1)
    ]
    assert {type(trial.overrides[0][1]) for trial in trials} == {float}
    assert [type(value) for value in sweeps.axis("width", np.arange(2)).values] == [int, int]
    assert sweeps.axis("rate", [np.float32(0.5)]).values == (0.5,)
    assert [trial.name for trial in trials] == [
        trial.name for trial in sweeps.expand(cfg, [sweeps.axis("rate", [0.01, 0.1]), axes[1]])
    ]


@pytest.mark.parametrize("value", ["adam", b"x", 0.1, np.float64(0.1), {"a": 1}])
def test_one_value_is_no_axis(value):
    """F34: a text was split into its letters."""
    with pytest.raises(ConfigError, match=r"--sweep\.name: .* is one value, and an axis is a list of them: \["):
        sweeps.axis("name", value)


def test_a_name_says_which_of_two_paths_is_meant():
    """F38: the last part of a path may say nothing, also where no other path ends like it."""
    paths = ["schedules.lr.value", "model.width", "train_losses.l2.weight", "optimizer['0']", "model.layers[0].width"]
    names = Namer(paths, 1).name(0, tuple((path, 1) for path in paths[:2]))
    assert names == "0000-lr.value=1-model.width=1"
    others = paths[2:]
    assert Namer(others, 1).name(0, tuple((path, 1) for path in others)) == "0000-l2.weight=1-optimizer.0=1-width=1"
    assert Namer(["value"], 1).name(0, (("value", 1),)) == "0000-value=1"
