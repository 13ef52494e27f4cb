"""Which parameters a pattern matches."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron_core import kd, konfig
from kauldron_core.errors import ConfigError

PARAMS = {
    "enc": {"a": {"k": 1.0, "b": 2.0}},
    "dec": {"b": {"k": 3.0}, "b2": 1.0},
    "l": [{"k": 1.0}, {"k": 2.0}],
}
NAMES = ("dec.b.k", "dec.b2", "enc.a.b", "enc.a.k", "l.0.k", "l.1.k")


def _matched(mask: Any) -> set[str]:
    return {name for name, chosen in zip(NAMES, jax.tree.leaves(mask), strict=True) if chosen}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("enc", {"enc.a.b", "enc.a.k"}),
        ("a", {"enc.a.b", "enc.a.k"}),
        ("k", {"dec.b.k", "enc.a.k", "l.0.k", "l.1.k"}),
        ("enc.a", {"enc.a.b", "enc.a.k"}),
        ("a.k", {"enc.a.k"}),
        ("b", {"dec.b.k", "enc.a.b"}),
        ("l.0", {"l.0.k"}),
        ("l[0]", {"l.0.k"}),
        ("l[1].k", {"l.1.k"}),
        ("b[2]", {"dec.b2"}),
        ("l.[01]", {"l.0.k", "l.1.k"}),
        (".*b", {"dec.b.k", "enc.a.b"}),
        ("b.*", {"dec.b.k", "dec.b2", "enc.a.b"}),
        ("b2$", {"dec.b2"}),
        (r"b\d", {"dec.b2"}),
        ("l.(0|1)", {"l.0.k", "l.1.k"}),
        (["a", "dec"], {"dec.b.k", "dec.b2", "enc.a.b", "enc.a.k"}),
        (("l.1", "b2"), {"dec.b2", "l.1.k"}),
    ],
)
def test_select_matches_whole_segments_or_a_regular_expression(pattern: Any, expected: set[str]) -> None:
    assert _matched(kd.optim.select(pattern)(PARAMS)) == expected
    assert _matched(kd.optim.exclude(pattern)(PARAMS)) == set(NAMES) - expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("encc", "unknown parameter 'encc'. Did you mean 'enc'?"),
        ("enc.k", "unknown parameter 'enc.k'. Did you mean 'enc.a.k'?"),
        ("en", "unknown parameter 'en'"),
        (["enc", "heads"], "unknown parameter 'heads'"),
        ("^a", "unknown parameter"),
        ("a(", "is no regular expression"),
    ],
)
def test_a_pattern_that_matches_nothing_is_a_typo(pattern: Any, message: str) -> None:
    for make in (kd.optim.select, kd.optim.exclude):
        with pytest.raises(ConfigError) as error:
            make(pattern)(PARAMS)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_a_pattern_may_be_allowed_to_match_nothing() -> None:
    assert not _matched(kd.optim.select("bias", missing_ok=True)(PARAMS))
    assert _matched(kd.optim.exclude("bias", missing_ok=True)(PARAMS)) == set(NAMES)
    assert kd.optim.select("anything")({}) == {}


@given(st.sets(st.sampled_from([part for name in NAMES for part in name.split(".")]), min_size=1))
def test_exclude_is_the_inverse_of_select(patterns: set[str]) -> None:
    chosen, left = kd.optim.select(sorted(patterns))(PARAMS), kd.optim.exclude(sorted(patterns))(PARAMS)
    assert jax.tree.map(lambda a, b: a != b, chosen, left) == jax.tree.map(lambda _: True, PARAMS)


def test_numbered_layers_of_an_nnx_model_are_segments() -> None:
    params = {"blocks": {0: {"kernel": 1.0}, 1: {"kernel": 2.0}}}
    assert kd.optim.select("blocks.1")(params) == {"blocks": {0: {"kernel": False}, 1: {"kernel": True}}}


def test_partial_updates_freezes_the_rest_at_no_cost() -> None:
    params = jax.tree.map(np.float32, PARAMS)
    optimizer = kd.optim.partial_updates(optax.adam(0.1), kd.optim.select("enc"))
    state = optimizer.init(params)
    assert len(jax.tree.leaves(state)) == 1 + 2 * 2  # a counter, and two moments of two parameters
    updates, _ = optimizer.update(params, state, params)
    changed = jax.tree.map(lambda update: bool(update != 0), updates)
    assert _matched(changed) == {"enc.a.b", "enc.a.k"}
    tree = kd.optim.partial_updates(optax.adam(0.1), kd.optim.select("enc")(params))
    jax.tree.map(np.testing.assert_array_equal, tree.update(params, tree.init(params), params)[0], updates)


def test_the_order_of_a_named_chain_is_that_of_the_config_also_after_the_disk() -> None:
    with konfig.imports():
        import optax as lazy_optax

        from kauldron_core import kd as lazy_kd

    cfg = lazy_kd.optim.named_chain(z=lazy_optax.scale(2.0), a=lazy_optax.clip(1.0))
    for config in (cfg, konfig.from_json(konfig.to_json(cfg))):
        optimizer = konfig.resolve(config)
        updates, state = optimizer.update({"w": 3.0}, optimizer.init({"w": 0.0}))
        # Doubled, then clipped: the other order gives 2.
        assert float(updates["w"]) == 1.0
        assert set(state) == {"z", "a"}
