"""What single losses promise beyond the contract, and many losses together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from kauldron_core import losses
from kauldron_core.ktyping import KTypeCheckError
from kauldron_core.losses import LossGroup, compute_losses, loss_totals
from kauldron_core.metrics import MaskError, accepts_padding, reduce_states, to_host


def test_every_public_name_exists():
    for name in losses.__all__:
        assert getattr(losses, name) is not None


def jit(function):
    """Returns `function` compiled quickly: op by op, each op would be compiled alone."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def value_of(loss, **arguments):
    return float(jit(lambda arguments: loss(**arguments))(arguments))


def gradient_of(loss, name, **arguments):
    """Returns the gradient of the loss by the argument `name`."""
    return jit(jax.grad(lambda x: loss(**{**arguments, name: x})))(arguments[name])


# --- Single losses


def test_nothing_is_broadcast():
    for loss in (losses.L1, losses.L2, losses.Huber, losses.Cosine):
        with pytest.raises(KTypeCheckError, match=r"targets does not fit"):
            loss(preds="p", targets="t")(preds=np.ones((4, 1)), targets=np.ones(4))
    with pytest.raises(ValueError, match="one-hot"):
        losses.SoftmaxCrossEntropyWithIntLabels(logits="a", labels="b")(logits=np.ones((4, 3)), labels=np.ones((4, 3)))


def test_integers_and_low_precision_are_computed_in_float32():
    images = np.array([[255, 0]], np.uint8), np.array([[0, 255]], np.uint8)
    assert value_of(losses.L2(preds="p", targets="t"), preds=images[0], targets=images[1]) == 255.0**2
    assert losses.L1(preds="p", targets="t").get_values(jnp.ones(2, jnp.bfloat16), jnp.ones(2)).dtype == jnp.float32


def test_ignored_labels_count_nowhere_and_may_lie_outside():
    loss = losses.SoftmaxCrossEntropyWithIntLabels(logits="l", labels="y", ignore_index=-100)
    logits = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    labels = np.array([[0, -100, 3], [-100, -100, 1]])
    rows = scipy.special.log_softmax(logits.astype(np.float64), -1)
    wanted = -(rows[0, 0, 0] + rows[0, 2, 3] + rows[1, 2, 1]) / 3
    assert value_of(loss, logits=logits, labels=labels) == pytest.approx(wanted, rel=1e-6)
    first = value_of(loss, logits=logits, labels=labels, mask=np.array([True, False]))
    assert first == pytest.approx(-(rows[0, 0, 0] + rows[0, 2, 3]) / 2, rel=1e-6)
    assert np.isfinite(gradient_of(loss, "logits", logits=logits, labels=labels)).all()


@pytest.mark.parametrize("big", [1e4, -1e4])
def test_large_logits_are_no_trouble(big):
    logits = np.array([[big, 0.0]], np.float32)
    cases = [
        (losses.SoftmaxCrossEntropyWithIntLabels(logits="l", labels="y"), np.array([0])),
        (losses.SoftmaxCrossEntropy(logits="l", labels="y"), np.array([[1.0, 0.0]])),
        (losses.SigmoidBinaryCrossEntropy(logits="l", labels="y"), np.array([[1.0, 0.0]])),
    ]
    for loss, labels in cases:
        assert np.isfinite(value_of(loss, logits=logits, labels=labels))
        assert np.isfinite(gradient_of(loss, "logits", logits=logits, labels=labels)).all()


def test_a_class_ruled_out_by_the_model_costs_nothing_where_its_label_is_0():
    logits = np.array([[0.0, -np.inf]], np.float32)
    one_hot = np.array([[1.0, 0.0]], np.float32)
    loss = losses.SoftmaxCrossEntropy(logits="l", labels="y")
    assert value_of(loss, logits=logits, labels=one_hot) == 0
    assert np.isfinite(gradient_of(loss, "logits", logits=logits, labels=one_hot)).all()
    assert value_of(losses.KL(logits="l", targets="y"), logits=logits, targets=one_hot) == 0


def test_zero_vectors_have_a_finite_gradient():
    zeros = np.zeros((2, 3), np.float32)
    for loss in (losses.Cosine(preds="p", targets="t"), losses.NegativeCosineSimilarity(preds="p", targets="t")):
        assert np.isfinite(gradient_of(loss, "preds", preds=zeros, targets=zeros + 1)).all()


def test_binary_labels_may_lack_the_last_dimension():
    loss = losses.SigmoidBinaryCrossEntropy(logits="l", labels="y")
    logits, labels = np.array([[0.3], [-1.0]], np.float32), np.array([1, 0])
    value = value_of(loss, logits=logits, labels=labels[:, None])
    assert value == pytest.approx((np.log1p(np.exp(-0.3)) + np.log1p(np.exp(-1.0))) / 2, rel=1e-6)
    assert value_of(loss, logits=logits, labels=labels) == value
    assert value_of(loss, logits=logits[:, 0], labels=labels[:, None]) == value


def info_nce(a, b, temperature):
    a, b = (rows / np.linalg.norm(rows, axis=-1, keepdims=True) for rows in (a, b))
    logits = a @ b.T / temperature
    forth = scipy.special.logsumexp(logits, axis=1) - np.diag(logits)
    return (forth + scipy.special.logsumexp(logits, axis=0) - np.diag(logits)) / 2


def test_contrastive_finds_partners_in_the_batch():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 6, 5)).astype(np.float32)
    loss = losses.Contrastive(preds="a", targets="b", temperature=0.5)
    assert value_of(loss, preds=a, targets=b) == pytest.approx(info_nce(a, b, 0.5).mean(), rel=1e-5)
    assert loss.depends_on_batch_size
    assert not losses.L2.depends_on_batch_size


def test_contrastive_masks_both_axes():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 6, 5)).astype(np.float32)
    loss = losses.Contrastive(preds="a", targets="b", temperature=0.5)
    padded = a.copy(), b.copy()
    padded[0][4:], padded[1][4:] = np.nan, 7.0
    mask = np.arange(6) < 4
    context = {"a": padded[0], "b": padded[1]}
    masked_state = jit(lambda context, mask: loss.get_state_from_context(context, padding_mask=mask))
    state = masked_state(context, mask)
    assert float(state.compute()) == pytest.approx(info_nce(a[:4], b[:4], 0.5).mean(), rel=1e-5)
    assert int(state.count) == 4

    def value(array):
        return loss.get_state_from_context({"a": array, "b": b}, padding_mask=mask).compute()

    gradient = jit(jax.grad(value))(a)
    assert np.isfinite(gradient).all()
    assert not np.any(gradient[4:])
    assert float(masked_state(context, np.zeros(6, bool)).compute()) == 0


def test_contrastive_refuses_other_shapes():
    with pytest.raises(KTypeCheckError, match="axis 0 is 5, but b is 4"):
        losses.Contrastive(preds="a", targets="b")(preds=np.ones((4, 3)), targets=np.ones((5, 3)))


def test_contexts_and_arguments_exclude_each_other():
    loss = losses.Value(values="v")
    with pytest.raises(TypeError, match="not both: context and values"):
        loss(context={"v": 1.0}, values=2.0)


def test_a_schedule_needs_the_step_and_a_number_does_not():
    scheduled = losses.Value(values="v", weight=lambda step: 2.0 * step)
    assert float(losses.Value(values="v", weight=2)(context={"v": 3.0})) == 6
    assert float(scheduled(context={"v": 3.0, "step": 2})) == 12
    assert float(scheduled(values=3.0, step=1)) == 6
    with pytest.raises(ValueError, match="Value: the weight is a schedule, which needs the step"):
        scheduled(values=3.0)
    with pytest.raises(KeyError, match=r"Value\.step: step: the root \(dict\) has no 'step'"):
        scheduled(context={"v": 3.0})


def test_normalize_by_takes_two_words():
    with pytest.raises(ValueError, match="normalize_by is 'mask' or 'values', not 'mean'"):
        losses.Value(values="v", normalize_by="mean")


def test_a_loss_without_examples_needs_no_padding_mask_or_cannot_take_it():
    mask = np.array([True, False])
    penalty = losses.AbsoluteValue(values="params.kernel")
    context = {"params": {"kernel": np.array([[1.0, -3.0]] * 5)}, "preds": {"aux": np.float32(2.0), "x": np.ones(2)}}
    assert float(penalty.get_state_from_context(context, padding_mask=mask).compute()) == 2.0
    auxiliary = losses.Value(values="preds.aux")
    assert not accepts_padding(auxiliary, context, mask)
    assert accepts_padding(penalty, context, mask)
    assert accepts_padding(losses.Value(values="preds.x"), context, mask)
    with pytest.raises(MaskError):
        auxiliary.get_state_from_context(context, padding_mask=mask)


# --- Many losses

CONTEXT = {"x": np.array([[1.0], [3.0]], np.float32), "y": np.zeros((2, 1), np.float32), "step": 2}
L1, L2 = losses.L1(preds="x", targets="y"), losses.L2(preds="x", targets="y")


def test_the_total_is_the_weighted_sum():
    total, states = compute_losses({"a": L1, "b": losses.L2(preds="x", targets="y", weight=0.1)}, CONTEXT)
    assert float(total) == pytest.approx(2 + 0.5)
    assert {name: float(state.compute()) for name, state in states.items()} == pytest.approx({"a": 2.0, "b": 0.5})


def test_no_losses_total_to_0():
    total, states = compute_losses({}, CONTEXT)
    assert (float(total), states) == (0, {})


def test_padded_rows_count_in_no_loss():
    total, _ = compute_losses({"a": L1, "b": L2}, CONTEXT, np.array([True, False]))
    assert float(total) == 2


def test_groups_have_totals_of_their_own():
    grouped = {
        "plain": L1,
        "generator": LossGroup(losses={"a": L1, "b": L2}, weight=2.0),
        "critic": {"a": L2, "deep": {"c": LossGroup(losses={"d": L1}, weight=lambda step: step * 5.0)}},
    }
    total, states = compute_losses(grouped, CONTEXT)
    assert set(states) == {"plain", "generator/a", "generator/b", "critic/a", "critic/deep/c/d"}
    totals = {name: float(value) for name, value in loss_totals(states).items()}
    assert totals == {
        "total": 2 + 14 + 25,
        "generator": 14,
        "critic": 25,
        "critic/deep": 20,
        "critic/deep/c": 20,
    }
    assert float(total) == totals["total"]
    named = dict(losses.named_losses(grouped))
    assert named["generator/b"].weight == 2.0
    assert named["plain"] is L1


def test_group_weights_multiply_numbers_and_schedules():
    inner = losses.L1(preds="x", targets="y", weight=lambda step: step + 1.0)
    grouped = {"g": LossGroup(losses={"h": LossGroup(losses={"a": inner}, weight=3.0)}, weight=lambda step: step)}
    total, states = compute_losses(grouped, CONTEXT)
    assert float(total) == 2 * 3 * 3 * 2
    assert hash(states["g/h/a"].parent) is not None


def test_totals_of_merged_states_are_those_of_the_whole():
    halves = [
        {name: value if name == "step" else value[at : at + 1] for name, value in CONTEXT.items()} for at in (0, 1)
    ]
    states = [compute_losses({"g": {"a": L1}, "b": L2}, half)[1] for half in halves]
    merged = {name: reduce_states([state[name] for state in states]) for name in states[0]}
    whole = loss_totals(compute_losses({"g": {"a": L1}, "b": L2}, CONTEXT)[1])
    assert {name: float(value) for name, value in loss_totals(merged).items()} == {
        name: float(value) for name, value in whole.items()
    }


def test_totals_of_host_states_are_in_64_bits():
    states = {name: to_host(state) for name, state in compute_losses({"g": {"a": L1}, "b": L2}, CONTEXT)[1].items()}
    assert {np.asarray(total).dtype for total in loss_totals(states).values()} == {np.dtype("f8")}


def test_total_is_no_name_for_a_loss():
    with pytest.raises(ValueError, match="g/total: the name is taken"):
        compute_losses({"g": {"total": L1}}, CONTEXT)


def test_an_error_names_the_loss():
    with pytest.raises(KeyError) as caught:
        compute_losses({"recon": losses.L1(preds="xx", targets="y")}, CONTEXT)
    assert "while computing the loss 'recon'" in caught.value.__notes__


def test_gradients_flow_through_the_total():
    def total(x):
        return compute_losses({"a": L1, "g": LossGroup(losses={"b": L2}, weight=0.5)}, {**CONTEXT, "x": x})[0]

    np.testing.assert_allclose(jax.grad(total)(CONTEXT["x"]), [[1.0], [2.0]])
