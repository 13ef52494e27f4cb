"""Schedules by name, against those of Optax and by their laws."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron_core import kd, konfig
from kauldron_core.errors import ConfigError
from kauldron_core.optim.schedules import SHAPES
from tests.kauldron_core import experiments

STEPS = np.arange(0, 140, 7)


def _schedule(name: str, **fields: Any) -> Any:
    end = 0.01 if name == "exponential" else 0.0
    return kd.optim.Schedule(**{"name": name, "value": 2.0, "num_steps": 100, "end_value": end, **fields})


@pytest.mark.parametrize(
    ("schedule", "reference"),
    [
        (_schedule("constant"), optax.constant_schedule(2.0)),
        (_schedule("linear", end_value=0.5), optax.linear_schedule(2.0, 0.5, 100)),
        (_schedule("cosine"), optax.cosine_decay_schedule(2.0, 100)),
        (
            _schedule("cosine", warmup_steps=20, init_value=0.5, end_value=0.1),
            optax.warmup_cosine_decay_schedule(0.5, 2.0, 20, 100, 0.1),
        ),
        (_schedule("exponential"), optax.exponential_decay(2.0, 100, 0.005, end_value=0.01)),
        (
            _schedule("trapezoid", cooldown_steps=40),
            optax.join_schedules([optax.constant_schedule(2.0), optax.linear_schedule(2.0, 0.0, 40)], [60]),
        ),
    ],
)
def test_it_is_what_optax_computes(schedule: Any, reference: Any) -> None:
    expected = [float(reference(step)) for step in STEPS]
    np.testing.assert_allclose([float(schedule(step)) for step in STEPS], expected, rtol=1e-5, atol=1e-6)


def test_inverse_sqrt_is_half_after_four_times_the_warmup() -> None:
    schedule = _schedule("inverse_sqrt", num_steps=None, warmup_steps=50)
    assert [float(schedule(step)) for step in (25, 50, 200, 5000)] == pytest.approx([1.0, 2.0, 1.0, 0.2])


@pytest.mark.parametrize("name", SHAPES)
@given(warmup=st.integers(0, 40), num_steps=st.integers(41, 200), step=st.integers(0, 300))
def test_it_stays_between_its_ends_and_meets_them(name: str, warmup: int, num_steps: int, step: int) -> None:
    schedule = _schedule(name, warmup_steps=warmup, num_steps=num_steps)
    low, high = 0.0, 2.0
    assert low <= float(schedule(step)) <= high * (1 + 1e-6)
    if warmup:
        assert float(schedule(0)) == 0.0
    assert float(schedule(warmup)) == pytest.approx(high) or (name == "trapezoid" and warmup > 0.8 * num_steps)
    if name not in ("constant", "inverse_sqrt"):
        assert float(schedule(num_steps + step)) == pytest.approx(schedule.end_value, abs=1e-6)


@pytest.mark.parametrize("name", SHAPES)
def test_every_number_of_it_may_be_traced(name: str) -> None:
    fields = {"value": 2.0, "num_steps": 100.0, "warmup_steps": 10.0, "end_value": 0.1, "init_value": 0.3}

    def values(fields: Any) -> Any:
        return jax.vmap(_schedule(name, **fields))(jnp.asarray(STEPS))

    written = [float(_schedule(name, **fields)(step)) for step in STEPS]
    np.testing.assert_allclose(jax.jit(values)(fields), written, rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "cosin"}, "unknown schedule 'cosin'. Did you mean 'cosine'?"),
        ({"name": "linear", "num_steps": None}, "schedule 'linear': num_steps is unset"),
        ({"name": "exponential", "end_value": 0.0}, "end_value has to be above 0"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(fields: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        _schedule(**fields)
    assert message in str(error.value)


def test_the_shape_can_be_overridden_and_the_optimizer_follows() -> None:
    with konfig.imports():
        import optax as lazy_optax

        from kauldron_core import kd as lazy_kd

    cfg = konfig.ConfigDict({"num_train_steps": 100, "schedules": {}})
    cfg.schedules.lr = lazy_kd.optim.Schedule(name="cosine", value=1.0, num_steps=cfg.ref.num_train_steps)
    cfg.optimizer = lazy_optax.sgd(learning_rate=cfg.ref.schedules.lr)
    konfig.apply_overrides(cfg, ["schedules.lr.name=linear", "num_train_steps=50"])
    optimizer = konfig.resolve(cfg).optimizer
    state = optimizer.init(jnp.float32(0))
    for expected in (-1.0, -0.98):
        update, state = optimizer.update(jnp.float32(1), state)
        assert float(update) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("cosine", {"num_steps": 20, "warmup_steps": 100}),
        ("linear", {"num_steps": 20, "warmup_steps": 21}),
        ("trapezoid", {"warmup_steps": 60, "cooldown_steps": 50}),
        ("trapezoid", {"cooldown_steps": 101}),
        ("cosine", {"warmup_steps": -1}),
    ],
)
def test_parts_that_contradict_each_other_are_refused(name: str, fields: dict[str, Any]) -> None:
    """F20: a warm-up longer than the schedule, and ends that overlap, were taken in silence."""
    with pytest.raises(ConfigError, match=rf"schedule '{name}': (warmup|cooldown)_steps"):
        _schedule(name, **fields)
    _schedule("trapezoid", warmup_steps=50, cooldown_steps=50)


def test_a_warmup_that_outlasts_the_run_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """F20: a run that ended within its warm-up was trained in silence."""
    schedule = _schedule("cosine", warmup_steps=20)
    experiments.trainer(num_train_steps=2, optimizer=optax.adam(schedule), checkpointer=None).train()
    assert "optimizer: schedule 'cosine': the warm-up of 20 steps does not end within the 2 steps" in caplog.text
    assert schedule.oddity(21) is None
    assert "the last fifth of its 100 steps" in _schedule("trapezoid", warmup_steps=90).oddity(100)
