"""What every metric promises, for every metric.

Each is compared with scikit-learn or NumPy on the whole arrays, for random batch splits, padded batches, masks, weights
and merge orders. Counts have to agree exactly; floats to 1e-6 between splits.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage
import scipy.special
import sklearn.metrics as sk

from kauldron_core import kontext, metrics
from kauldron_core.metrics import AutoState, AverageState, Metric, reduce_states, sum_field, to_host

ROWS, BATCH, CLASSES = 40, 16, 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class UsersOwn(Metric):
    """A metric as a user writes it: how many values are above 0, and their mean length."""

    values: kontext.Key = kontext.REQUIRED
    mask: kontext.Key | None = None

    @flax.struct.dataclass
    class State(AutoState):
        above: jax.Array = sum_field()
        length: AverageState = metrics.state_field()

        def compute(self):
            return {"above": self.above, "length": self.length.compute()}

    def get_state(self, values, mask=None):
        weights = metrics.weights_of(mask, values.shape[:1])
        above = jnp.where(values.sum(axis=-1) > 0, weights, 0).sum()
        length = AverageState.from_values(jnp.sqrt((values**2).sum(axis=-1)), mask)
        return self.State(above=above, length=length)


@dataclasses.dataclass(frozen=True)
class Case:
    """A metric, the shapes of its data, and its value by NumPy.

    Attributes:
      metric: With keys below `batch`.
      reference: Value from the arrays of the batch and the weight of each row, all in float64.
      is_weighted: Whether the reference holds for weights other than 0 and 1.
      is_exact: Whether counts alone make the value, so that it is the same to the last bit.
    """

    metric: Metric
    reference: Callable[..., Any]
    is_weighted: bool = True
    is_exact: bool = False


def softmax(batch):
    return scipy.special.softmax(batch["logits"], axis=-1)


def best(batch):
    return batch["logits"].argmax(axis=-1)


def mean(values, weights):
    values = np.asarray(values, np.float64)
    weights = np.broadcast_to(weights.reshape((-1,) + (1,) * (values.ndim - 1)), values.shape)
    return (values * weights).sum() / weights.sum()


def top_3(b, w):
    return sk.top_k_accuracy_score(b["label"], b["logits"], k=3, labels=range(CLASSES), sample_weight=w)


def counts_score(score, average):
    def reference(b, w):
        if average == "binary":
            return score(b["bit"], b["score"] > 0, sample_weight=w, zero_division=0)
        return score(b["label"], best(b), average=average, sample_weight=w, zero_division=0)

    return reference


def counts_metric(cls, average):
    if average == "binary":
        return cls(labels="batch.bit", logits="batch.score", average="binary")
    return cls(labels="batch.label", logits="batch.logits", average=average)


def macro_precision(b, w):
    return sk.average_precision_score(np.eye(CLASSES)[b["label"]], softmax(b), average="macro", sample_weight=w)


def ece(b, w, bins=15):
    confidence, correct = softmax(b).max(axis=-1), best(b) == b["label"]
    value = 0.0
    for low in np.arange(bins) / bins:
        chosen = (confidence > low) & (confidence <= low + 1 / bins)
        if w[chosen].sum():
            gap = np.average(correct[chosen], weights=w[chosen]) - np.average(confidence[chosen], weights=w[chosen])
            value += abs(gap) * w[chosen].sum() / w.sum()
    return value


def perplexity(b, w):
    taken = np.take_along_axis(scipy.special.log_softmax(b["token_logits"], axis=-1), b["tokens"][..., None], -1)[
        ..., 0
    ]
    weights = w[:, None] * (b["tokens"] != 0)
    return np.exp(-(taken * weights).sum() / weights.sum())


def token_accuracy(b, w):
    weights = w[:, None] * (b["tokens"] != 0)
    return ((b["token_logits"].argmax(-1) == b["tokens"]) * weights).sum() / weights.sum()


def ssim(left, right):
    def blur(image):
        blurred = scipy.ndimage.gaussian_filter(image, 1.5, radius=5, axes=(0, 1))
        return blurred[5:-5, 5:-5]

    mean_l, mean_r = blur(left), blur(right)
    var_l, var_r = blur(left**2) - mean_l**2, blur(right**2) - mean_r**2
    both = blur(left * right) - mean_l * mean_r
    c1, c2 = 0.01**2, 0.03**2
    top = (2 * mean_l * mean_r + c1) * (2 * both + c2)
    return (top / ((mean_l**2 + mean_r**2 + c1) * (var_l + var_r + c2))).mean()


def histogram(b, w):
    values, weights = b["x"].ravel(), np.repeat(w, b["x"].shape[1])
    edges = np.linspace(-1, 1, 6, dtype=np.float32)
    counts, _ = np.histogram(values, edges, weights=weights)
    below, above = weights[values < -1].sum(), weights[values > 1].sum()
    return {"counts": counts, "edges": edges, "below": below, "above": above, "nan": 0}


def std(b, w):
    weights = np.repeat(w, b["x"].shape[1])
    return np.sqrt(np.cov(b["x"].ravel(), aweights=weights, ddof=0))


CASES = {
    "accuracy": Case(
        metrics.Accuracy(labels="batch.label", logits="batch.logits"),
        lambda b, w: sk.accuracy_score(b["label"], best(b), sample_weight=w),
        is_exact=True,
    ),
    "accuracy_of_predicted_labels": Case(
        metrics.Accuracy(labels="batch.label_column", pred_labels="batch.guess"),
        lambda b, w: sk.accuracy_score(b["label"], b["guess"], sample_weight=w),
        is_exact=True,
    ),
    "accuracy_top_3": Case(
        metrics.Accuracy(labels="batch.label_column", logits="batch.logits", top_k=3), top_3, is_exact=True
    ),
    "token_accuracy": Case(
        metrics.TokenAccuracy(labels="batch.tokens", logits="batch.token_logits", ignore_index=0), token_accuracy
    ),
    "binary_accuracy": Case(
        metrics.BinaryAccuracy(labels="batch.bit", logits="batch.score"),
        lambda b, w: sk.accuracy_score(b["bit"], b["score"] > 0, sample_weight=w),
        is_exact=True,
    ),
    "precision_at_1": Case(
        metrics.Precision1(labels="batch.several", logits="batch.logits"),
        lambda b, w: mean(b["several"][np.arange(len(w)), best(b)], w),
    ),
    **{
        f"{cls.__name__}_{average}": Case(counts_metric(cls, average), counts_score(score, average), is_exact=True)
        for cls, score in [
            (metrics.Precision, sk.precision_score),
            (metrics.Recall, sk.recall_score),
            (metrics.F1, sk.f1_score),
        ]
        for average in ("binary", "macro", "micro")
    },
    "f1_of_predicted_labels": Case(
        metrics.F1(labels="batch.label", pred_labels="batch.guess", num_classes=CLASSES),
        lambda b, w: sk.f1_score(b["label"], b["guess"], average="macro", sample_weight=w, zero_division=0),
        is_exact=True,
    ),
    "confusion": Case(
        metrics.ConfusionMatrix(labels="batch.label", logits="batch.logits"),
        lambda b, w: sk.confusion_matrix(b["label"], best(b), labels=range(CLASSES), sample_weight=w),
        is_exact=True,
    ),
    "confusion_by_row": Case(
        metrics.ConfusionMatrix(labels="batch.label", pred_labels="batch.guess", num_classes=CLASSES, normalize="true"),
        lambda b, w: sk.confusion_matrix(
            b["label"], b["guess"], labels=range(CLASSES), sample_weight=w, normalize="true"
        ),
    ),
    "roc_auc": Case(
        metrics.RocAuc(labels="batch.bit", logits="batch.score"),
        lambda b, w: sk.roc_auc_score(b["bit"], b["score"], sample_weight=w),
    ),
    "roc_auc_two_logits": Case(
        metrics.RocAuc(labels="batch.bit", logits="batch.two"),
        lambda b, w: sk.roc_auc_score(b["bit"], b["two"][:, 1] - b["two"][:, 0], sample_weight=w),
    ),
    "roc_auc_ovr": Case(
        metrics.RocAuc(labels="batch.label", logits="batch.logits"),
        lambda b, w: sk.roc_auc_score(b["label"], softmax(b), multi_class="ovr", sample_weight=w),
    ),
    "roc_auc_ovo": Case(
        metrics.RocAuc(labels="batch.label", logits="batch.logits", multi_class_mode="ovo", unique_labels=[0, 1, 2, 3]),
        lambda b, w: sk.roc_auc_score(b["label"][w > 0], softmax(b)[w > 0], multi_class="ovo"),
        is_weighted=False,
    ),
    "average_precision": Case(
        metrics.AveragePrecision(labels="batch.bit", logits="batch.score"),
        lambda b, w: sk.average_precision_score(b["bit"], b["score"], sample_weight=w),
    ),
    "average_precision_macro": Case(
        metrics.AveragePrecision(labels="batch.label", logits="batch.logits"), macro_precision
    ),
    "ece": Case(metrics.ECE(labels="batch.label", logits="batch.logits"), ece),
    "perplexity": Case(
        metrics.Perplexity(labels="batch.tokens", logits="batch.token_logits", ignore_index=0), perplexity
    ),
    "mae": Case(
        metrics.Mae(preds="batch.x", targets="batch.y"),
        lambda b, w: sk.mean_absolute_error(b["y"], b["x"], sample_weight=w),
    ),
    "mse": Case(
        metrics.Mse(preds="batch.x", targets="batch.y"),
        lambda b, w: sk.mean_squared_error(b["y"], b["x"], sample_weight=w),
    ),
    "r2": Case(
        metrics.R2(preds="batch.x", targets="batch.y"), lambda b, w: sk.r2_score(b["y"], b["x"], sample_weight=w)
    ),
    "r2_single": Case(
        metrics.R2(preds="batch.score", targets="batch.far"),
        lambda b, w: sk.r2_score(b["far"], b["score"], sample_weight=w),
    ),
    "std": Case(metrics.Std(values="batch.x"), std),
    "average": Case(metrics.Average(values="batch.image"), lambda b, w: mean(b["image"], w)),
    "average_of_integers": Case(metrics.Average(values="batch.guess"), lambda b, w: mean(b["guess"], w), is_exact=True),
    "single_dimension": Case(metrics.SingleDimension(tensor="batch.x", index=-1), lambda b, w: mean(b["x"][:, -1], w)),
    "norm": Case(metrics.Norm(tensor="batch.x"), lambda b, w: mean(np.linalg.norm(b["x"], axis=-1), w)),
    "norm_concat": Case(
        metrics.Norm(tensor="batch.x", ord=3, aggregation_type="concat"),
        lambda b, w: ((np.abs(b["x"]) ** 3).sum(axis=-1) @ w) ** (1 / 3),
    ),
    "histogram": Case(metrics.Histogram(values="batch.x", range=(-1, 1), bins=5), histogram, is_exact=True),
    "psnr": Case(
        metrics.Psnr(pred="batch.image", target="batch.other"),
        lambda b, w: mean(-10 * np.log10(((b["image"] - b["other"]) ** 2).mean(axis=(1, 2, 3))), w),
    ),
    "ssim": Case(
        metrics.Ssim(pred="batch.image", target="batch.other"),
        lambda b, w: mean([ssim(*pair) for pair in zip(b["image"], b["other"], strict=True)], w),
    ),
    "weighted": Case(
        metrics.WeightedAverage(metric=metrics.Mae(preds="batch.score", targets="batch.far"), weights="batch.weight"),
        lambda b, w: mean(np.abs(b["score"] - b["far"]), w * b["weight"]),
    ),
    "tree_map": Case(
        metrics.TreeMap(metric=metrics.Norm(tensor="batch.tree.**.x")),
        lambda b, w: {"a": {"x": mean(np.linalg.norm(b["x"], axis=-1), w)}, "b": {"x": mean(np.abs(b["score"]), w)}},
    ),
    "tree_reduce": Case(
        metrics.TreeReduce(metric=metrics.Average(values="batch.tree.*.x")),
        lambda b, w: mean(np.concatenate([b["x"], b["score"][:, None]], axis=1), w),
    ),
    "skip_if_missing": Case(
        metrics.SkipIfMissing(metric=metrics.Average(values="batch.score")), lambda b, w: mean(b["score"], w)
    ),
    "users_own": Case(
        UsersOwn(values="batch.x"),
        lambda b, w: {
            "above": ((b["x"].sum(axis=-1) > 0) * w).sum(),
            "length": mean(np.linalg.norm(b["x"], axis=-1), w),
        },
    ),
}


def make_batch(rng, rows=ROWS):
    """Returns arrays of `rows` rows. The first rows hold every class, so that no curve is undefined."""
    label = np.concatenate([np.arange(CLASSES), np.arange(CLASSES), rng.integers(0, CLASSES, rows - 2 * CLASSES)])
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    image = rng.uniform(size=(rows, 12, 13, 2)).astype(np.float32)
    batch = {
        "label": label.astype(np.int32),
        "label_column": label.astype(np.int32)[:, None],
        # Coarse, so that there are ties.
        "logits": rng.integers(-9, 9, size=(rows, CLASSES)).astype(np.float32) / 4
        + np.arange(CLASSES, dtype=np.float32) / 64,
        "guess": rng.integers(0, CLASSES, rows).astype(np.int32),
        "bit": (label % 2).astype(np.int32),
        "score": rng.integers(-5, 6, rows).astype(np.float32) / 2,
        "two": rng.normal(size=(rows, 2)).astype(np.float32),
        "several": rng.integers(0, 2, (rows, CLASSES)).astype(np.float32),
        "tokens": rng.integers(0, 5, (rows, 6)).astype(np.int32),
        "token_logits": rng.normal(size=(rows, 6, 5)).astype(np.float32),
        "x": x,
        "y": (x + rng.normal(size=x.shape)).astype(np.float32),
        "far": (1000 + rng.normal(size=rows)).astype(np.float32),
        "image": image,
        "other": np.clip(image + rng.normal(0, 0.1, image.shape), 0, 1).astype(np.float32),
        "weight": rng.uniform(0.5, 2.0, rows).astype(np.float32),
    }
    return {**batch, "tree": {"a": {"x": batch["x"], "z": batch["two"]}, "b": {"x": batch["score"][:, None]}}}


def take(batch, rows):
    return jax.tree.map(lambda leaf: leaf[rows], batch)


def pad(batch, rows):
    """Returns the rows of `batch`, filled up to a full batch with rows of NaN, and the padding mask."""
    chosen = np.concatenate([rows, np.zeros(BATCH - len(rows), int)]).astype(int)
    mask = np.arange(BATCH) < len(rows)

    def spoil(leaf):
        spoiled = leaf.copy()
        if spoiled.dtype.kind == "f":
            spoiled[~mask] = np.nan
        return spoiled

    return jax.tree.map(spoil, take(batch, chosen)), mask


def in_float64(batch):
    return jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64) if np.asarray(leaf).dtype.kind == "f" else leaf, batch
    )


def with_mask(metric):
    """Returns `metric` with its mask wired to `batch.mask`."""
    if isinstance(metric, metrics.WeightedAverage | metrics.TreeMap | metrics.TreeReduce | metrics.SkipIfMissing):
        return dataclasses.replace(metric, metric=with_mask(metric.metric))
    return dataclasses.replace(metric, mask="batch.mask")


def agree(left, right, rtol=2e-6, atol=2e-6):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=rtol, atol=atol)


def merge_at_random(rng, states):
    """Merges in random order and grouping, with empty states in between."""
    states = [states[index] for index in rng.permutation(len(states))]
    while len(states) > 1:
        at = rng.integers(0, len(states) - 1)
        states[at : at + 2] = [states[at].merge(states[at + 1])]
    return states[0]


@pytest.fixture(params=CASES, scope="module")
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def masked(case):
    """The metric of the case with a mask of the user."""
    return with_mask(case.metric)


@pytest.fixture(scope="module")
def state_of(masked):
    """Gives the state of a padded batch on the host; compiled once for all tests of the case."""
    compiled = jit(lambda batch, mask: masked.get_state_from_context({"batch": batch}, padding_mask=mask))
    return lambda batch, mask: to_host(compiled({"mask": np.ones(BATCH, bool), **batch}, mask))


@pytest.fixture(scope="module")
def whole_states(case):
    """Gives the states of two whole arrays without any mask, computed side by side by vmap."""
    compiled = jit(jax.vmap(lambda batch: case.metric.get_state_from_context({"batch": batch})))

    def states(*batches):
        stacked = compiled(jax.tree.map(lambda *leaves: np.stack(leaves), *batches))
        return [to_host(jax.tree.map(lambda leaf, index=index: leaf[index], stacked)) for index in range(len(batches))]

    return states


def jit(function):
    """Returns `function` compiled quickly: what it runs on is tiny."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def settings(max_examples):
    unscoped = hypothesis.HealthCheck.function_scoped_fixture
    return hypothesis.settings(max_examples=max_examples, deadline=None, suppress_health_check=[unscoped])


@settings(6)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_every_split_order_and_padding_gives_the_value_of_the_whole(case, masked, state_of, whole_states, seed):
    rng = np.random.default_rng(seed)
    batch, rows, states = make_batch(rng), rng.permutation(ROWS), []
    while len(rows):
        size = rng.integers(1, BATCH + 1)
        states.append(state_of(*pad(batch, rows[:size])))
        rows = rows[size:]
    states.insert(rng.integers(0, len(states)), masked.empty())
    value = merge_at_random(rng, states).compute()
    tolerance = 0 if case.is_exact else 1e-6
    _, whole = whole_states(make_batch(rng), batch)
    agree(value, whole.compute(), rtol=tolerance, atol=tolerance)
    agree(value, case.reference(in_float64(batch), np.ones(ROWS)), rtol=1e-5, atol=1e-5)
    agree(value, reduce_states(states).compute(), rtol=tolerance, atol=tolerance)


@settings(3)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_masks_and_weights_of_the_user_are_combined_with_padding(case, state_of, seed):
    """M04: masks and weights of the user are combined with padding."""
    rng = np.random.default_rng(seed)
    batch, rows = make_batch(rng), rng.permutation(ROWS)
    weights = rng.choice([0.0, 0.5, 1.0, 2.0] if case.is_weighted else [0.0, 1.0], ROWS)
    weights[: 2 * CLASSES] = 1.0
    batch["mask"] = weights.astype(np.float32)[:, None]
    states = [state_of(*pad(batch, rows[at : at + 9])) for at in range(0, ROWS, 9)]
    agree(merge_at_random(rng, states).compute(), case.reference(in_float64(batch), weights), rtol=1e-5, atol=1e-5)


def test_merging_is_associative_and_empty_is_its_identity(masked, state_of):
    batch = make_batch(np.random.default_rng(2))
    a, b, c = (state_of(*pad(batch, np.arange(at, at + 13))) for at in (0, 13, 26))
    agree(a.merge(b).merge(c).compute(), a.merge(b.merge(c)).compute(), rtol=1e-12, atol=1e-12)
    for merged in (a.merge(masked.empty()), masked.empty().merge(a)):
        agree(merged.compute(), a.compute(), rtol=0, atol=0)
        assert merged.parent == a.parent


def test_a_state_knows_its_metric(masked, state_of):
    state = state_of(*pad(make_batch(np.random.default_rng(3)), np.arange(BATCH)))
    if not isinstance(masked, metrics.WeightedAverage | metrics.TreeReduce | metrics.TreeMap):
        assert state.parent == masked
    assert hash(state.parent) == hash(state.merge(state).parent)


def test_on_the_host_sums_are_in_64_bits(masked, state_of):
    state = state_of(*pad(make_batch(np.random.default_rng(4)), np.arange(9)))
    leaves = jax.tree.leaves(state.merge(state))
    assert all(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves)
    if not isinstance(masked, metrics.RocAuc | metrics.AveragePrecision):
        assert {np.asarray(leaf).dtype for leaf in leaves} <= {np.dtype("f8"), np.dtype("i8")}


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_states_merge_on_the_device_as_on_the_host(masked, dtype):
    """F06: counts and sums in few bits stopped growing where states were merged inside a step."""
    whole = {"mask": np.ones(ROWS, bool), **make_batch(np.random.default_rng(6))}
    narrow = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype if leaf.dtype.kind == "f" else leaf.dtype), whole)
    batches = [take(narrow, rows) for rows in np.split(np.arange(ROWS), 4)]
    states = [masked.get_state_from_context({"batch": batch}) for batch in batches]
    on_device = functools.reduce(lambda left, right: left.merge(right), states)
    agree(on_device.compute(), reduce_states(states).compute(), rtol=1e-5, atol=1e-6)


def test_nothing_valid_is_nan_for_whoever_asks(masked, state_of):
    """F07: a loss of nothing was 0 and best, a perplexity of nothing 1, a calibration error of nothing 0."""
    batch = make_batch(np.random.default_rng(7))
    rows, mask = pad(batch, np.arange(5))
    for state in (masked.empty(), state_of(rows, np.zeros_like(mask)), state_of({**rows, "mask": mask & False}, mask)):
        if not jax.tree.leaves(state) and isinstance(masked, metrics.TreeMap | metrics.SkipIfMissing):
            continue  # Without a batch it does not know what it would compute to.
        assert state.is_empty()
        values = jax.tree.leaves(state.compute_or_nan())
        assert values
        assert all(np.isnan(value).all() for value in values)
    some = state_of(rows, mask)
    assert not some.is_empty()
    agree(some.compute_or_nan(), some.compute(), rtol=0, atol=0)


def test_vmap_over_trials(case, whole_states):
    batches = [make_batch(np.random.default_rng(seed)) for seed in range(2)]
    for batch, state in zip(batches, whole_states(*batches), strict=True):
        agree(state.compute(), case.reference(in_float64(batch), np.ones(ROWS)), rtol=1e-5, atol=1e-5)


def test_a_mask_that_does_not_match_the_leading_dimensions_is_an_error(masked):
    batch = take(make_batch(np.random.default_rng(5)), np.arange(BATCH))
    for wrong in (np.ones(BATCH - 1, bool), np.ones((BATCH, 7), bool), np.ones((3, BATCH), bool)):
        with pytest.raises(metrics.MaskError):
            jax.eval_shape(masked.get_state_from_context, {"batch": {**batch, "mask": wrong}})


def test_every_metric_takes_a_mask_and_says_so(case):
    assert case.metric.takes_mask


def test_every_public_metric_is_in_the_table():
    base = {"Metric", "NoopMetric", "GlobalNorm"}  # That one is about steps, not examples: see the tests of training.
    public = {name for name in metrics.__all__ if isinstance(getattr(metrics, name), type)}
    wanted = {name for name in public if issubclass(getattr(metrics, name), Metric)} - base
    assert wanted <= {type(case.metric).__name__ for case in CASES.values()}


def test_states_of_different_metrics_refuse_to_merge():
    states = [case.metric.empty() for case in CASES.values() if not isinstance(case.metric, metrics.TreeReduce)]
    for index, left in enumerate(states):
        for right in states[:index]:
            with pytest.raises((TypeError, ValueError), match="cannot merge"):
                left.merge(right)
