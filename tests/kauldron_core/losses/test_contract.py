"""What every loss promises, for every loss, against NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from kauldron_core import kontext, losses
from kauldron_core.losses import Loss
from kauldron_core.metrics import MaskError, reduce_states, to_host

ROWS, BATCH, CLASSES = 23, 8, 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quartic(Loss):
    """A loss as a user writes it."""

    preds: kontext.Key = kontext.REQUIRED
    targets: kontext.Key = kontext.REQUIRED

    def get_values(self, preds, targets):
        return (preds - targets) ** 4


def log_softmax(b, key="logits"):
    return scipy.special.log_softmax(b[key], axis=-1)


def picked(b):
    return -np.take_along_axis(log_softmax(b), b["label"][:, None], -1)[:, 0]


def smooth_z(b):
    evenly = -log_softmax(b).mean(axis=-1)
    return 0.9 * picked(b) + 0.1 * evenly + 0.01 * scipy.special.logsumexp(b["logits"], axis=-1) ** 2


def bce(b):
    p = scipy.special.expit(b["logits"])
    return -(b["several"] * np.log(p) + (1 - b["several"]) * np.log(1 - p))


def cosine(b):
    return (b["x"] * b["y"]).sum(-1) / np.linalg.norm(b["x"], axis=-1) / np.linalg.norm(b["y"], axis=-1)


def huber(b):
    size = np.abs(b["x"] - b["y"])
    return np.where(size <= 0.7, 0.5 * size**2, 0.7 * (size - 0.35))


def kl(b):
    probs = b["probs"]
    return (probs * (np.log(np.where(probs > 0, probs, 1)) - log_softmax(b))).sum(-1)


def kl_of_logits(b):
    return (np.exp(log_softmax(b, "other")) * (log_softmax(b, "other") - log_softmax(b))).sum(-1)


XY: dict[str, Any] = {"preds": "batch.x", "targets": "batch.y"}
INT: dict[str, Any] = {"logits": "batch.logits", "labels": "batch.label"}
# Each loss, and its value for each element by NumPy in float64.
CASES: dict[str, tuple[Loss, Callable[[Any], Any]]] = {
    "value": (losses.Value(values="batch.x"), lambda b: b["x"]),
    "absolute_value": (losses.AbsoluteValue(values="batch.x"), lambda b: np.abs(b["x"])),
    "l1": (losses.L1(**XY), lambda b: np.abs(b["x"] - b["y"])),
    "l2": (losses.L2(**XY), lambda b: (b["x"] - b["y"]) ** 2),
    "huber": (losses.Huber(**XY, delta=0.7), huber),
    "softmax_int": (losses.SoftmaxCrossEntropyWithIntLabels(**INT), picked),
    "softmax_int_column": (
        losses.SoftmaxCrossEntropyWithIntLabels(logits="batch.logits", labels="batch.label_column"),
        picked,
    ),
    "softmax_int_smooth_z": (
        losses.SoftmaxCrossEntropyWithIntLabels(**INT, label_smoothing=0.1, z_loss=0.01),
        smooth_z,
    ),
    "softmax": (
        losses.SoftmaxCrossEntropy(logits="batch.logits", labels="batch.probs"),
        lambda b: -(b["probs"] * log_softmax(b)).sum(-1),
    ),
    "softmax_smooth_z": (
        losses.SoftmaxCrossEntropy(logits="batch.logits", labels="batch.one_hot", label_smoothing=0.1, z_loss=0.01),
        smooth_z,
    ),
    "sigmoid": (losses.SigmoidBinaryCrossEntropy(logits="batch.logits", labels="batch.several"), bce),
    "kl": (losses.KL(logits="batch.logits", targets="batch.probs"), kl),
    "kl_of_logits": (
        losses.KL(logits="batch.logits", targets="batch.other", targets_are_logits=True),
        kl_of_logits,
    ),
    "cosine": (losses.Cosine(**XY), lambda b: 1 - cosine(b)),
    "negative_cosine": (losses.NegativeCosineSimilarity(**XY), lambda b: -cosine(b)),
    "users_own": (Quartic(**XY), lambda b: (b["x"] - b["y"]) ** 4),
}


def make_batch(rng, rows=ROWS):
    label = rng.integers(0, CLASSES, rows).astype(np.int32)
    logits = rng.normal(size=(rows, CLASSES)).astype(np.float32) * 3
    probs = rng.dirichlet(np.ones(CLASSES), rows).astype(np.float32)
    probs[: rows // 3] = np.eye(CLASSES)[label[: rows // 3]]
    return {
        "x": rng.normal(size=(rows, 5)).astype(np.float32),
        "y": rng.normal(size=(rows, 5)).astype(np.float32),
        "label": label,
        "label_column": label[:, None],
        "one_hot": np.eye(CLASSES, dtype=np.float32)[label],
        "probs": probs,
        "logits": logits,
        "other": rng.normal(size=(rows, CLASSES)).astype(np.float32),
        "several": rng.integers(0, 2, (rows, CLASSES)).astype(np.float32),
    }


def take(batch, rows):
    return {name: array[rows] for name, array in batch.items()}


def pad(batch, rows):
    """Returns a full batch, whose rows beyond `rows` repeat row 0, and the padding mask."""
    chosen = np.concatenate([rows, np.zeros(BATCH - len(rows), int)]).astype(int)
    return take(batch, chosen), np.arange(BATCH) < len(rows)


def float64(batch):
    return {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in batch.items()}


def weighted_mean(values, weights):
    weights = np.broadcast_to(weights.reshape((-1,) + (1,) * (values.ndim - 1)), values.shape)
    return (values * weights).sum() / weights.sum()


def jit(function):
    """Returns `function` compiled quickly: what it runs on is tiny."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


@pytest.fixture(params=CASES, scope="module")
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def state_of(case):
    """The state of a padded batch with a mask of weights; compiled once for all tests of the case."""
    loss = dataclasses.replace(case[0], mask="batch.mask")
    return jit(lambda batch, mask: loss.get_state_from_context({"batch": batch}, padding_mask=mask))


def test_the_value_is_the_mean_over_all_elements(case):
    loss, reference = case
    batch = make_batch(np.random.default_rng(0))
    value = jit(lambda batch: loss(context={"batch": batch}))(batch)
    assert value.shape == ()
    assert value.dtype == jnp.float32
    assert float(value) == pytest.approx(reference(float64(batch)).mean(), rel=1e-5, abs=1e-6)


@hypothesis.settings(max_examples=5, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_every_split_with_padding_and_weights_gives_the_weighted_mean_of_the_whole(case, state_of, seed):
    rng = np.random.default_rng(seed)
    batch, rows, states = make_batch(rng), rng.permutation(ROWS), []
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], ROWS)
    weights[0] = 1.0
    batch["mask"] = weights.astype(np.float32)
    while len(rows):
        size = rng.integers(1, BATCH + 1)
        states.append(state_of(*pad(batch, rows[:size])))
        rows = rows[size:]
    del batch["mask"]
    value = reduce_states(states).compute()
    assert float(value) == pytest.approx(weighted_mean(case[1](float64(batch)), weights), rel=1e-5, abs=1e-6)


def test_gradients_are_those_of_the_rows_that_count(case):
    loss, _ = case
    batch, mask = pad(make_batch(np.random.default_rng(1)), np.arange(5))
    name = "x" if "x" in str(kontext.get_keypaths(loss)) else "logits"

    def value(array, batch, mask):
        return loss.get_state_from_context({"batch": {**batch, name: array}}, padding_mask=mask).compute()

    padded = jit(jax.grad(value))(batch[name], batch, mask)
    alone = jit(jax.grad(value))(batch[name][:5], take(batch, np.arange(5)), np.ones(5, bool))
    np.testing.assert_allclose(padded[:5], alone, rtol=2e-5, atol=1e-6)
    assert not np.any(padded[5:])


def test_weights_may_be_numbers_schedules_or_traced(case):
    loss, _ = case
    batch = make_batch(np.random.default_rng(2))

    def state(weight, step=None):
        context = {"batch": batch, "step": step}
        return dataclasses.replace(loss, weight=weight).get_state_from_context(context)

    def everything(weights, step):
        return state(1.0), state(0.5), state(lambda step: step * 0.1, step), jax.vmap(state)(weights)

    plain, half, scheduled, traced = to_host(jit(everything)(jnp.arange(3.0), 3))
    value = plain.compute()
    assert half.compute() == pytest.approx(value * 0.5, rel=1e-6)
    assert scheduled.compute() == pytest.approx(value * 0.3, rel=1e-6)
    np.testing.assert_allclose(traced.total / traced.count, value * np.arange(3), rtol=1e-6)
    assert hash(jax.tree.structure(traced)) is not None


def test_normalizing_by_values_divides_by_all_real_ones(case):
    loss, reference = case
    batch, padding = pad(make_batch(np.random.default_rng(3)), np.arange(6))
    mask = np.array([1, 0, 1, 0, 0, 1, 1, 1], np.float32)
    loss = dataclasses.replace(loss, mask="batch.mask", normalize_by="values")
    state = jit(lambda batch: loss.get_state_from_context({"batch": batch}, padding_mask=padding))(
        {**batch, "mask": mask}
    )
    values = reference(float64(take(batch, np.arange(6))))
    assert float(state.compute()) == pytest.approx(values[[0, 2, 5]].sum() / values.size, rel=1e-5, abs=1e-6)


def test_an_all_zero_mask_gives_0_and_a_zero_gradient(case):
    loss, _ = case
    loss = dataclasses.replace(loss, mask="batch.mask")
    batch = {**make_batch(np.random.default_rng(4)), "mask": np.zeros(ROWS, bool)}
    name = "x" if "x" in str(kontext.get_keypaths(loss)) else "logits"
    value, gradient = jit(jax.value_and_grad(lambda x: loss(context={"batch": {**batch, name: x}})))(batch[name])
    assert float(value) == 0
    assert not np.any(gradient)


def test_nothing_valid_is_nan_for_whoever_asks(case):
    """F07: the loss of an evaluation without a valid example was 0, and best."""
    loss = dataclasses.replace(case[0], mask="batch.mask")
    batch = {**make_batch(np.random.default_rng(4)), "mask": np.zeros(ROWS, bool)}
    state = to_host(loss.get_state_from_context({"batch": batch}))
    assert state.is_empty()
    assert np.isnan(state.compute_or_nan())
    assert float(state.compute()) == 0


def test_a_mask_that_does_not_match_the_leading_dimensions_is_an_error(case):
    loss, _ = case
    loss = dataclasses.replace(loss, mask="batch.mask")
    batch = make_batch(np.random.default_rng(5))
    for wrong in (np.ones(ROWS - 1, bool), np.ones((ROWS, 9), bool), np.ones((5,), bool)):
        with pytest.raises(MaskError):
            jax.eval_shape(loss.get_state_from_context, {"batch": {**batch, "mask": wrong}})


def test_every_public_loss_is_in_the_table():
    public = {name for name in losses.__all__ if isinstance(getattr(losses, name), type)}
    wanted = {name for name in public if issubclass(getattr(losses, name), Loss)} - {"Loss"}
    # A loss over pairs has no value for each element; it has a file of its own.
    assert wanted - {"Contrastive"} <= {type(loss).__name__ for loss, _ in CASES.values()}
