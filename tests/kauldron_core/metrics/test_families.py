"""What single metrics promise beyond the contract."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics as sk

from kauldron_core import metrics
from kauldron_core.ktyping import KTypeCheckError


def of(metric, **arguments):
    """Returns the value of a metric, compiled as one."""
    return metrics.to_host(jax.jit(lambda arguments: metric.get_state(**arguments))(arguments)).compute()


def test_accuracy_of_the_first_class_on_a_tie():
    logits = np.zeros((2, 3), np.float32)
    assert of(metrics.Accuracy(labels="y", logits="x"), labels=np.array([0, 1]), logits=logits) == 0.5
    top_2 = metrics.Accuracy(labels="y", logits="x", top_k=2)
    assert of(top_2, labels=np.array([1, 2]), logits=logits) == 0.5
    assert of(metrics.Accuracy(labels="y", logits="x", top_k=9), labels=np.array([1, 2]), logits=logits) == 1.0


def test_accuracy_over_sequences_and_images():
    logits = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    labels = logits.argmax(-1)
    labels[0] = -1
    assert of(metrics.Accuracy(labels="y", logits="x"), labels=labels, logits=logits) == 0.5
    rows = of(metrics.Accuracy(labels="y", logits="x"), labels=labels, logits=logits, mask=np.array([False, True]))
    assert rows == 1.0


def test_accuracy_refuses_what_it_would_have_to_broadcast():
    metric = metrics.Accuracy(labels="y", logits="x")
    with pytest.raises(ValueError, match="one-hot"):
        metric(labels=np.eye(3), logits=np.eye(3))
    with pytest.raises(KTypeCheckError, match=r"logits does not fit"):
        metric(labels=np.arange(4), logits=np.eye(3))
    with pytest.raises(ValueError, match="pred_labels of shape"):
        metrics.Accuracy(labels="y", pred_labels="x")(labels=np.arange(4), pred_labels=np.zeros((4, 2)))


def test_accuracy_takes_one_kind_of_prediction():
    with pytest.raises(ValueError, match="not both"):
        metrics.Accuracy(labels="a", logits="b", pred_labels="c")
    with pytest.raises(ValueError, match="top_k=0"):
        metrics.Accuracy(labels="a", logits="b", top_k=0)
    for cls in (metrics.Accuracy, metrics.Precision, metrics.ConfusionMatrix):
        with pytest.raises(ValueError, match="needs either logits or pred_labels"):
            cls(labels="a")(labels=np.arange(3))


def test_precision_and_recall_without_any_positive_are_0():
    zeros = np.zeros(4, np.int32)
    for cls in (metrics.Precision, metrics.Recall, metrics.F1):
        assert of(cls(labels="y", pred_labels="p", average="binary"), labels=zeros, pred_labels=zeros) == 0


def test_binary_counts_take_two_logits_one_logit_or_labels():
    rng = np.random.default_rng(1)
    labels, two = rng.integers(0, 2, 50), rng.normal(size=(50, 2)).astype(np.float32)
    wanted = sk.f1_score(labels, two.argmax(-1))
    metric = metrics.F1(labels="y", logits="x", average="binary")
    assert of(metric, labels=labels, logits=two) == pytest.approx(wanted)
    assert of(metric, labels=labels[:, None], logits=two) == pytest.approx(wanted)
    assert of(metric, labels=labels, logits=two[:, 1] - two[:, 0]) == pytest.approx(wanted)
    assert of(metric, labels=labels[:, None], logits=(two[:, 1] - two[:, 0])[:, None]) == pytest.approx(wanted)
    assert of(metric, labels=labels, pred_labels=two.argmax(-1)) == pytest.approx(wanted)
    other = metrics.Recall(labels="y", logits="x", average="binary", positive=0)
    assert of(other, labels=labels, logits=two) == pytest.approx(sk.recall_score(labels, two.argmax(-1), pos_label=0))


def test_macro_leaves_out_classes_that_never_occur():
    labels, guess = np.array([0, 0, 2]), np.array([0, 2, 2])
    metric = metrics.Precision(labels="y", pred_labels="p", num_classes=10)
    wanted = sk.precision_score(labels, guess, average="macro", zero_division=0)
    assert of(metric, labels=labels, pred_labels=guess) == pytest.approx(wanted)
    with pytest.raises(ValueError, match="num_classes has to be set"):
        metrics.Precision(labels="y", pred_labels="p")(labels=labels, pred_labels=guess)
    with pytest.raises(ValueError, match="average is 'binary', 'macro' or 'micro'"):
        metrics.Precision(labels="y", average="weighted")


def test_confusion_leaves_out_labels_outside():
    metric = metrics.ConfusionMatrix(labels="y", pred_labels="p", num_classes=2)
    matrix = of(metric, labels=np.array([-1, 0, 1, 2, 1]), pred_labels=np.array([0, 1, 1, 0, -1]))
    assert matrix.tolist() == [[0, 1], [0, 1]]
    assert matrix.dtype == np.int64


@pytest.mark.parametrize("normalize", ["true", "pred", "all"])
def test_confusion_normalizes_as_scikit_learn_does(normalize):
    rng = np.random.default_rng(2)
    labels, guess = rng.integers(0, 3, (2, 30))
    metric = metrics.ConfusionMatrix(labels="y", pred_labels="p", num_classes=4, normalize=normalize)
    with np.errstate(all="ignore"):
        wanted = sk.confusion_matrix(labels, guess, labels=range(4), normalize=normalize)
    np.testing.assert_allclose(of(metric, labels=labels, pred_labels=guess), wanted)


def test_ranking_is_undefined_with_one_class_and_fine_with_ties():
    metric, precision = metrics.RocAuc(labels="y", logits="x"), metrics.AveragePrecision(labels="y", logits="x")
    scores = np.array([0.1, 0.2, 0.3], np.float32)
    assert np.isnan(of(metric, labels=np.ones(3, int), logits=scores))
    assert np.isnan(of(precision, labels=np.zeros(3, int), logits=scores))
    assert of(precision, labels=np.ones(3, int), logits=scores) == 1
    assert of(metric, labels=np.array([0, 1, 1]), logits=np.zeros(3, np.float32)) == 0.5
    assert np.isnan(of(metric, labels=np.array([0, 1, 1]), logits=scores, mask=np.zeros(3, bool)))


def test_roc_auc_over_chosen_classes():
    rng = np.random.default_rng(3)
    labels, logits = rng.integers(0, 3, 60), rng.normal(size=(60, 4)).astype(np.float32)
    probs = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum(-1, keepdims=True)
    metric = metrics.RocAuc(labels="y", logits="x", unique_labels=[0, 2])
    wanted = np.mean([sk.roc_auc_score(labels == index, probs[:, index]) for index in (0, 2)])
    assert of(metric, labels=labels, logits=logits) == pytest.approx(wanted, rel=1e-6)
    assert hash(metric) is not None


def test_std_keeps_its_digits_far_from_0():
    values = (1e4 + np.random.default_rng(4).normal(size=(200, 5))).astype(np.float32)
    metric = metrics.Std(values="x")
    states = [metric.get_state(values=row) for row in values]
    assert metrics.reduce_states(states).compute() == pytest.approx(values.astype(np.float64).std(), rel=1e-6)
    assert metric.empty().compute() == 0


def test_r2_of_a_constant_target():
    metric = metrics.R2(preds="x", targets="y")
    ones = np.ones(3, np.float32)
    assert of(metric, preds=ones, targets=ones) == 1
    assert of(metric, preds=ones * 2, targets=ones) == 0


def test_norms_of_vectors_matrices_and_whole_arrays():
    x = np.random.default_rng(5).normal(size=(2, 3, 4)).astype(np.float32)
    assert of(metrics.Norm(tensor="x", ord=1), tensor=x) == pytest.approx(np.abs(x).sum(-1).mean(), rel=1e-5)
    matrices = np.linalg.norm(x, ord="nuc", axis=(1, 2)).mean()
    assert of(metrics.Norm(tensor="x", ord="nuc", axis=(1, 2)), tensor=x) == pytest.approx(matrices, rel=1e-5)
    assert of(metrics.Norm(tensor="x", axis=None), tensor=x) == pytest.approx(np.linalg.norm(x.ravel()), rel=1e-5)
    assert of(metrics.Norm(tensor="x", axis=None, ord=np.inf), tensor=x) == pytest.approx(np.abs(x).max(), rel=1e-6)
    with pytest.raises(ValueError, match="'concat' needs a positive finite order"):
        metrics.Norm(tensor="x", ord=np.inf, aggregation_type="concat")
    with pytest.raises(ValueError, match="aggregation_type is 'average' or 'concat'"):
        metrics.Norm(tensor="x", aggregation_type="sum")


def test_histogram_edges_infinities_and_nan():
    values = np.array([0.0, 0.25, 0.5, 1.0, -0.1, 1.1, np.inf, -np.inf, np.nan], np.float32)
    value = of(metrics.Histogram(values="x", bins=4), values=values)
    assert value["counts"].tolist() == [1, 1, 1, 1]
    assert (value["below"], value["above"], value["nan"]) == (2, 2, 1)
    with pytest.raises(ValueError, match="no range of bins"):
        metrics.Histogram(values="x", range=(1, 0))


def test_psnr_of_equal_images_and_of_bytes():
    image = np.full((1, 4, 4, 1), 200, np.uint8)
    metric = metrics.Psnr(pred="a", target="b", in_vrange=(0, 255))
    assert of(metric, pred=image, target=image) == np.inf
    assert of(metrics.Psnr(pred="a", target="b", clip=60.0), pred=image, target=image) == 60
    assert of(metric, pred=image, target=image - 255 + 245) == pytest.approx(20 * np.log10(255 / 10), rel=1e-5)
    with pytest.raises(KTypeCheckError, match="target does not fit"):
        metric(pred=image, target=image[..., 0])


def test_ssim_is_1_for_equal_images_and_needs_room_for_its_window():
    image = np.random.default_rng(6).uniform(-1, 1, (2, 12, 12, 3)).astype(np.float32)
    metric = metrics.Ssim(pred="a", target="b", in_vrange=(-1, 1))
    assert of(metric, pred=image, target=image) == pytest.approx(1, abs=1e-6)
    small = of(metrics.Ssim(pred="a", target="b", filter_size=3), pred=image[:, :4, :4], target=image[:, :4, :4])
    assert small == pytest.approx(1, abs=1e-6)
    with pytest.raises(ValueError, match="smaller than the window"):
        metric(pred=image[:, :8], target=image[:, :8])


def test_ssim_is_the_same_whatever_the_range_of_the_pixels():
    left, right = np.random.default_rng(7).uniform(size=(2, 1, 14, 14, 1)).astype(np.float32)
    unit = of(metrics.Ssim(pred="a", target="b"), pred=left, target=right)
    centered = metrics.Ssim(pred="a", target="b", in_vrange=(-1, 1))
    assert of(centered, pred=2 * left - 1, target=2 * right - 1) == pytest.approx(unit, rel=1e-4)


def test_a_perfectly_calibrated_classifier_has_no_error():
    logits = np.log(np.array([[0.75, 0.25]] * 4, np.float32))
    assert of(metrics.ECE(logits="x", labels="y"), logits=logits, labels=np.array([0, 0, 0, 1])) == pytest.approx(
        0, abs=1e-6
    )
    wrong = of(metrics.ECE(logits="x", labels="y"), logits=logits, labels=np.ones(4, int))
    assert wrong == pytest.approx(0.75, rel=1e-6)


def test_perplexity_of_a_uniform_model_is_its_vocabulary():
    logits, labels = np.zeros((2, 3, 7), np.float32), np.array([[1, 2, 0], [3, 0, 0]])
    assert of(metrics.Perplexity(logits="x", labels="y"), logits=logits, labels=labels) == pytest.approx(7, rel=1e-6)


def test_single_dimension_checks_its_index():
    with pytest.raises(ValueError, match="index 3 is outside"):
        metrics.SingleDimension(tensor="x", index=3)(tensor=np.zeros((2, 3)))
    assert of(metrics.SingleDimension(tensor="x", index=None), tensor=np.arange(4.0)) == 1.5


def test_values_of_a_device_state_can_be_computed_too():
    state = metrics.Perplexity(logits="x", labels="y").get_state(logits=jnp.zeros((1, 2)), labels=jnp.zeros(1, int))
    assert float(jax.jit(lambda state: state.compute())(state)) == pytest.approx(2, rel=1e-6)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_scores_that_are_no_numbers_have_a_place_in_the_order(odd):
    """A logit of minus infinity is a class left out; one of NaN is a model gone wrong, which must not end training."""
    place = -5.0 if odd == -np.inf else 5.0  # NaN comes last, as it sorts.
    logits, labels = np.array([0.1, odd, 0.2, 0.3], np.float32), np.array([0, 1, 0, 1])
    for metric in (metrics.RocAuc(logits="a", labels="b"), metrics.AveragePrecision(logits="a", labels="b")):
        expected = of(metric, logits=np.array([0.1, place, 0.2, 0.3], np.float32), labels=labels)
        assert of(metric, logits=logits, labels=labels) == expected
