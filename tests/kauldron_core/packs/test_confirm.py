"""What is traced and yet used in another way than a number of Python is found out, leaf by leaf."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import optax as ox
import pytest

from kauldron_core import kd as kd_
from kauldron_core import konfig, kontext, packs
from tests.kauldron_core import experiments
from tests.kauldron_core.packs.test_packs import config

with konfig.imports():
    import optax

    from tests.kauldron_core.packs import test_confirm as here

pytestmark = pytest.mark.slow


def branching_decay(learning_rate: float, decay: Any) -> Any:
    """An optimizer that takes what is no float for a schedule of its own."""
    factor = decay if isinstance(decay, float) else 3 * decay
    return ox.adamw(learning_rate, weight_decay=factor)


def swallowing(learning_rate: float) -> Any:
    """An optimizer that takes a default for what it can't read."""
    try:
        rate = float(learning_rate)
    except Exception:
        rate = 0.1
    return ox.sgd(rate)


def swallowing_decay(decay: float) -> Any:
    """As above, for what does next to nothing in three steps."""
    try:
        decay = float(decay)
    except Exception:
        decay = 1e-5
    return ox.adamw(1e-3, weight_decay=decay)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Powered(kd_.losses.L2):
    """A loss that takes a default for what is no float."""

    power: Any = 2.0

    def get_values(self, preds: Any, targets: Any) -> Any:
        power = self.power if isinstance(self.power, float) else 2.0
        return (1 + jnp.abs(preds - 2 * targets)) ** power


class Branching(nn.Module):
    """A model that scales its output by what is a float only."""

    x: kontext.Key = "batch.x"
    scale: Any = 1.0

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(experiments.CLASSES)(x)
        return x * self.scale if isinstance(self.scale, float) else x


def late(first: float, last: Any) -> Any:
    """A schedule in which what a number does shows late."""
    last = last if isinstance(last, float) else 0.5 * last
    return lambda count: jnp.where(count < 10, first, last)


def strict(learning_rate: float) -> Any:
    """An optimizer that compares its number."""
    return ox.sgd(learning_rate) if learning_rate > 0 else ox.sgd(0.0)


def refined(configs: list[Any], **settings: Any) -> packs.Plan:
    return packs.refine(configs, packs.plan(configs), time=False, **settings)


def reasons(plan: packs.Plan) -> dict[str, str]:
    return {leaf.path: leaf.reason for leaf in plan.leaves if not leaf.is_packed}


def test_a_branch_on_the_type_of_a_number_splits_packs_and_the_other_leaves_stay() -> None:
    configs = [
        config(optimizer=here.branching_decay(learning_rate=rate, decay=decay), evals={})
        for rate in (1e-2, 3e-2)
        for decay in (1e-5, 1e-3)
    ]
    plan = refined(configs)
    assert list(reasons(plan)) == ["optimizer.decay"], list(plan.explain())
    assert "three steps alone and packed differ (params." in reasons(plan)["optimizer.decay"]
    assert [pack.members for pack in plan.packs] == [(0, 2), (1, 3)]
    assert {pack.arguments for pack in plan.packs} == {("optimizer.learning_rate",)}


@pytest.mark.soak
def test_what_is_swallowed_in_some_trials_leaves_the_others_packed() -> None:
    configs = [
        config(evals={}, optimizer=make(rate))
        for make in (lambda rate: here.swallowing(learning_rate=rate), lambda rate: optax.sgd(learning_rate=rate))
        for rate in (0.2, 0.25)
    ]
    plan = refined(configs)
    assert [pack.members for pack in plan.packs] == [(0,), (1,), (2, 3)]
    assert plan.packs[-1].arguments == ("optimizer.learning_rate",)
    (reason,) = (leaf.reason for leaf in plan.leaves if leaf.path == "optimizer.learning_rate")
    assert reason.startswith("in some trials three steps alone and packed differ (params.")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda x: {"model": here.Branching(scale=x)}, "model.scale"),
        (lambda x: {"optimizer": here.swallowing_decay(decay=1e-5 * x)}, "optimizer.decay"),
        (
            lambda x: {"train_losses__extra": here.Powered(preds="preds", targets="preds", power=x)},
            "train_losses.extra.power",
        ),
    ],
)
def test_numbers_that_are_not_used_when_traced_are_found(make: Any, path: str) -> None:
    configs = [config(evals={}, **make(value)) for value in (0.5, 0.25)]
    plan = refined(configs)
    assert list(reasons(plan)) == [path], list(plan.explain())
    assert "three steps alone and packed differ" in reasons(plan)[path]
    assert [pack.members for pack in plan.packs] == [(0,), (1,)]


def test_a_comparison_fails_while_tracing() -> None:
    configs = [config(optimizer=here.strict(learning_rate=rate)) for rate in (0.1, 0.2)]
    plan = refined(configs)
    assert "can't be traced with it: TracerBoolConversionError" in reasons(plan)["optimizer.learning_rate"]


def test_a_schedule_is_looked_at_over_all_steps() -> None:
    configs = [config(optimizer=optax.sgd(learning_rate=here.late(first=0.1, last=last))) for last in (0.2, 0.3)]
    found = reasons(refined(configs))["optimizer.learning_rate.last"]
    assert found == "the schedule optimizer.learning_rate differs at step 10: 0.3 against 0.15", found


@pytest.mark.soak
def test_what_agrees_stays_packed() -> None:
    configs = [
        config(
            optimizer=optax.chain(
                optax.clip_by_global_norm(clip), optax.adamw(learning_rate=rate, weight_decay=decay, b2=b2)
            ),
            model__dropout=dropout,
            seed=seed,
        )
        for seed, (clip, rate, decay, b2, dropout) in enumerate(
            [(0.1, 1e-3, 1e-6, 0.99, 0.1), (0.2, 1e-2, 1e-4, 0.999, 0.5), (100.0, 1e38, 1e-5, 0.9, 0.0)]
        )
    ]
    plan = packs.plan(configs)
    assert len(plan.leaves) == 6
    assert refined(configs) == plan, list(refined(configs).explain())
