"""A law: whatever numbers trials differ in, a pack gives each what it gives alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies

from kauldron_core import kd as kd_
from kauldron_core import konfig, kontext, packs
from tests.kauldron_core import experiments
from tests.kauldron_core.packs.test_packs import config

with konfig.imports():
    import optax

    from tests.kauldron_core.packs import test_equality as here

pytestmark = pytest.mark.slow

NUM_STEPS = 200


class Net(nn.Module):
    """A model of a chosen type, with dropout and, if it is to be so, batch statistics."""

    x: kontext.Key = "batch.x"
    dropout: float = 0.1
    has_statistics: bool = False
    dtype: Any = jnp.float32

    is_training = kd_.nn.train_property()

    @nn.compact
    def __call__(self, x):
        # No bias where the statistics would take it away: its gradient would be nothing but rounding.
        types = {"dtype": self.dtype, "param_dtype": self.dtype}
        x = nn.Dense(8, use_bias=not self.has_statistics, **types)(x)
        if self.has_statistics:
            x = nn.BatchNorm(use_running_average=not self.is_training, momentum=0.9, **types)(x)
        x = kd_.nn.Dropout(self.dropout)(jnp.tanh(x))
        return nn.Dense(experiments.CLASSES, **types)(x)


SCHEDULES = {
    "constant": lambda rate, end: rate,
    "cosine": lambda rate, end: optax.cosine_decay_schedule(init_value=rate, decay_steps=NUM_STEPS, alpha=end),
    "exponential": lambda rate, end: optax.exponential_decay(
        init_value=rate, transition_steps=50, decay_rate=0.1 + 0.9 * end
    ),
    "linear": lambda rate, end: optax.linear_schedule(
        init_value=rate, end_value=end * rate, transition_steps=NUM_STEPS
    ),
    "warmup": lambda rate, end: optax.warmup_cosine_decay_schedule(
        init_value=0.0, peak_value=rate, warmup_steps=20, decay_steps=NUM_STEPS, end_value=end * rate
    ),
}

OPTIMIZERS = {
    "adam": lambda rate, n: optax.adam(learning_rate=rate, b1=n.beta, b2=n.slow_beta),
    "adamw": lambda rate, n: optax.adamw(learning_rate=rate, b1=n.beta, weight_decay=n.decay),
    "sgd": lambda rate, n: optax.sgd(learning_rate=rate, momentum=n.beta, nesterov=True),
    "lion": lambda rate, n: optax.lion(learning_rate=rate, b1=n.beta, weight_decay=n.decay),
    "adafactor": lambda rate, n: optax.adafactor(learning_rate=rate, decay_rate=n.beta, weight_decay_rate=n.decay),
    "lamb": lambda rate, n: optax.lamb(learning_rate=rate, b1=n.beta, weight_decay=n.decay),
    "clipped adamw": lambda rate, n: optax.chain(
        optax.clip_by_global_norm(n.clip), optax.adamw(learning_rate=rate, weight_decay=n.decay)
    ),
    "clipped sgd": lambda rate, n: optax.chain(
        optax.clip(n.clip), optax.add_decayed_weights(n.decay), optax.sgd(learning_rate=rate)
    ),
}


class Numbers(NamedTuple):
    """In what two trials differ."""

    rate: float
    end: float
    beta: float
    slow_beta: float
    decay: float
    clip: float
    weight: float
    dropout: float
    seed: int


class Case(NamedTuple):
    """What two trials have in common, and the numbers of each."""

    optimizer: str
    schedule: str
    has_statistics: bool
    has_own_order: bool
    steps_per_call: int
    numbers: tuple[Numbers, Numbers]


def _floats(low: float, high: float) -> strategies.SearchStrategy[float]:
    return strategies.floats(low, high, allow_subnormal=False)


NUMBERS = strategies.builds(
    Numbers,
    rate=_floats(1e-4, 3e-2),
    end=_floats(0.01, 0.9),
    beta=_floats(0.5, 0.95),
    slow_beta=_floats(0.9, 0.99),
    decay=_floats(1e-5, 1e-1),
    clip=_floats(0.01, 1.0),
    weight=_floats(0.1, 3.0),
    dropout=_floats(0.0, 0.6),
    seed=strategies.integers(0, 2**31 - 1),
)
CASES = strategies.builds(
    Case,
    optimizer=strategies.sampled_from(sorted(OPTIMIZERS)),
    schedule=strategies.sampled_from(sorted(SCHEDULES)),
    has_statistics=strategies.booleans(),
    has_own_order=strategies.booleans(),
    steps_per_call=strategies.sampled_from((1, 20)),
    numbers=strategies.tuples(NUMBERS, NUMBERS),
)


def trial(case: Case, numbers: Numbers, *, dtype: str, num_steps: int) -> Any:
    """Returns the config of one trial."""
    rate = SCHEDULES[case.schedule](numbers.rate, numbers.end)
    cfg = config(
        optimizer=OPTIMIZERS[case.optimizer](rate, numbers),
        model=here.Net(
            dropout=numbers.dropout,
            has_statistics=case.has_statistics,
            dtype=konfig.ConfigDict({"__const__": f"jax.numpy:{dtype}"}),
        ),
        train_losses__xent__weight=numbers.weight,
        seed=numbers.seed,
        num_train_steps=num_steps,
        log_metrics_every=num_steps,
        steps_per_call=case.steps_per_call,
        evals={},
    )
    if case.has_own_order:
        cfg.train_ds.seed = None
    return cfg


def assert_equal(case: Case, *, dtype: str, num_steps: int, tolerance: float) -> None:
    """Asserts that two trials are packed, and come to the same packed and alone."""
    if case.has_statistics and dtype == "float64":
        # Flax makes them in 32 bits and updates them in 64, which a loop in the program refuses.
        case = case._replace(steps_per_call=1)
    configs = [trial(case, numbers, dtype=dtype, num_steps=num_steps) for numbers in case.numbers]
    plan = packs.plan(configs)
    if case.numbers[0] != case.numbers[1]:
        assert [leaf for leaf in plan.leaves if not leaf.is_packed] == [], list(plan.explain())
    packed = packs.train(configs, plan.packs[0])
    for index, cfg in enumerate(configs):
        alone, ours = konfig.resolve(cfg).train(), packed.state_of(index)
        for part in ("params", "collections", "opt_state"):
            assert_near(getattr(alone, part), getattr(ours, part), tolerance=tolerance)
        assert int(ours.step) == num_steps


def assert_near(alone: Any, packed: Any, *, tolerance: float) -> None:
    """Asserts that arrays agree, each relative to the size of its numbers."""
    for (path, want), got in zip(jax.tree.leaves_with_path(alone), jax.tree.leaves(packed), strict=True):
        want, got = np.asarray(want), np.asarray(got)
        assert want.dtype == got.dtype
        if not np.issubdtype(want.dtype, np.floating):
            np.testing.assert_array_equal(want, got)
        elif want.size:
            assert np.isfinite(want).all()
            error = np.linalg.norm(want - got) / max(np.linalg.norm(want), np.finfo(want.dtype).tiny)
            assert error <= tolerance, f"{jax.tree_util.keystr(path)}: {error}"


def examples(count: int) -> hypothesis.settings:
    # A smaller example tells nothing more, and each takes seconds.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    return hypothesis.settings(max_examples=count, phases=phases, database=None)


@pytest.mark.soak
def test_two_trials_are_equal_in_64_bits() -> None:
    first = Numbers(1e-2, 0.1, 0.8, 0.99, 1e-2, 0.1, 0.5, 0.2, seed=3)
    second = Numbers(3e-3, 0.5, 0.9, 0.98, 1e-4, 1.0, 2.0, 0.5, seed=4)
    case = Case("clipped adamw", "cosine", True, has_own_order=True, steps_per_call=20, numbers=(first, second))
    with jax.enable_x64(True):
        assert_equal(case, dtype="float64", num_steps=25, tolerance=1e-12)


@pytest.mark.soak
@hypothesis.given(CASES)
@examples(24)
def test_trials_are_equal_in_64_bits(case: Case) -> None:
    with jax.enable_x64(True):
        assert_equal(case, dtype="float64", num_steps=NUM_STEPS, tolerance=1e-12)


@pytest.mark.soak
@hypothesis.given(CASES)
@examples(16)
def test_trials_are_near_in_32_bits(case: Case) -> None:
    hypothesis.assume(case.optimizer != "lion")  # Its steps are signs, and that of zero follows rounding.
    assert_equal(case, dtype="float32", num_steps=NUM_STEPS, tolerance=1e-4)


@pytest.mark.soak
@hypothesis.given(CASES, _floats(0.99, 0.9999))
@examples(6)
def test_betas_close_to_one_are_near_in_32_bits(case: Case, slow_beta: float) -> None:
    case = case._replace(optimizer="adam", numbers=(case.numbers[0]._replace(slow_beta=slow_beta), case.numbers[1]))
    assert_equal(case, dtype="float32", num_steps=NUM_STEPS, tolerance=1e-2)
