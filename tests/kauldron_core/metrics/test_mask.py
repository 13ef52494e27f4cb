"""The one mask rule, and how two masks become one."""

import hypothesis
import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron_core.metrics import AverageState, MaskError, align_mask, combine_masks, weights_of

shapes = st.lists(st.integers(1, 3), max_size=4).map(tuple)


def fits(mask, values):
    """The rule in words: leading dimensions equal or 1; what is more, at the end, is 1."""
    if any(size != 1 for size in mask[len(values) :]):
        return False
    return all(size in (1, wanted) for size, wanted in zip(mask, values, strict=False))


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(shapes, shapes)
def test_a_mask_fits_exactly_as_the_rule_says(mask, values):
    if fits(mask, values):
        aligned = align_mask(np.ones(mask, bool), values)
        assert aligned.ndim == len(values)
        assert np.broadcast_shapes(aligned.shape, values) == values
    else:
        with pytest.raises(MaskError):
            align_mask(np.ones(mask, bool), values)


@pytest.mark.parametrize(
    ("mask", "values", "aligned"),
    [
        ((32,), (32, 1), (32, 1)),
        ((32,), (32, 10, 5), (32, 1, 1)),
        ((32, 1), (32,), (32,)),
        ((1,), (32, 10), (1, 1)),
        ((32, 1, 5), (32, 10, 5), (32, 1, 5)),
        ((), (32, 10), (1, 1)),
        ((), (), ()),
        ((1, 1), (), ()),
    ],
)
def test_shapes_that_fit(mask, values, aligned):
    assert align_mask(np.ones(mask), values).shape == aligned


def test_a_square_means_rows():
    values = np.arange(9.0).reshape(3, 3)
    state = AverageState.from_values(values, np.array([True, False, False]))
    assert float(state.compute()) == 1.0


@pytest.mark.parametrize(("mask", "values"), [((2,), (3, 3)), ((10,), (32, 10)), ((32, 2), (32,)), ((5,), ())])
def test_shapes_that_fit_no_rule_are_an_error(mask, values):
    with pytest.raises(MaskError, match="matches the leading dimensions"):
        align_mask(np.ones(mask), values)


def test_the_error_shows_how_to_mask_trailing_dimensions():
    with pytest.raises(MaskError, match=r"give it the shape \(1, 10\)"):
        align_mask(np.ones(10), (32, 10))


def test_masks_combine():
    rows, both = np.array([True, True, False]), np.array([[True, False], [True, True], [True, True]])
    weights = np.array([0.5, 2.0, 3.0], np.float32)
    assert combine_masks(None, None) is None
    assert combine_masks(rows, None) is rows
    assert combine_masks(None, rows) is rows
    assert np.array_equal(combine_masks(rows, both), [[True, False], [True, True], [False, False]])
    assert np.array_equal(combine_masks(both, rows), combine_masks(rows, both))
    assert np.array_equal(combine_masks(weights, rows), [0.5, 2, 0])
    assert np.array_equal(combine_masks(rows, weights), [0.5, 2, 0])
    assert np.array_equal(combine_masks(weights, weights), weights**2)
    assert combine_masks(np.ones((1, 5), bool), rows).shape == (3, 5)


def test_masks_of_different_batches_do_not_combine():
    with pytest.raises(MaskError, match=r"\(3,\) and \(4,\)"):
        combine_masks(np.ones(3, bool), np.ones(4, bool))
    with pytest.raises(MaskError):
        combine_masks(np.ones((3, 4), bool), np.ones(4, bool))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("mask", [np.array([True, False]), np.array([1.0, 0.0]), np.array([1, 0])])
def test_where_the_mask_is_0_the_values_may_be_anything(bad, mask):
    state = AverageState.from_values(np.array([3.0, bad]), mask)
    assert float(state.compute()) == 3.0
    assert float(state.count) == 1


def test_a_padding_row_with_nan_as_weight_does_not_count():
    assert np.array_equal(combine_masks(np.array([1.0, np.nan]), np.array([True, False])), [1, 0])


def test_weights_of_are_integers_for_booleans():
    assert weights_of(None, (2, 3)).dtype == jnp.int32
    assert weights_of(np.array([True, False]), (2, 3)).tolist() == [[1, 1, 1], [0, 0, 0]]
    assert weights_of(np.array([0.5, 1.0], np.float16), (2,)).dtype == jnp.float32
