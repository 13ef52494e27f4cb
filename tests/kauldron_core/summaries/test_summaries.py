"""Summaries keep exactly the first or a random k, whatever the batches; what they draw is what was there."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kauldron_core import metrics, summaries

# Few shapes: each is compiled once.
_SIZES = st.lists(st.sampled_from([1, 3]), min_size=1, max_size=4)


def _images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 3, 4, 3), np.float32)


@functools.partial(jax.jit, static_argnums=0)
def _get_state(summary: Any, batch: dict[str, jax.Array]) -> Any:
    return summary.get_state(**batch)


def _merged(summary: Any, data: dict[str, np.ndarray], sizes: list[int], order: list[int] | None = None) -> Any:
    """Returns what `summary` computes to when the data comes in batches of these sizes, merged in this order."""
    ends = [sum(sizes[:index]) for index in range(len(sizes) + 1)]
    states = [
        _get_state(summary, {key: value[start:end] for key, value in data.items()})
        for start, end in itertools.pairwise(ends)
    ]
    states = [states[index] for index in order] if order else states
    return metrics.reduce_states([summary.empty(), *states]).compute()


@settings(max_examples=12, deadline=None)
@given(_SIZES, st.sampled_from([2, 5]))
def test_the_first_k_are_kept_however_the_data_is_batched(sizes: list[int], num: int) -> None:
    images = _images(sum(sizes))
    shown = _merged(summaries.ShowImages(images="x", num_images=num), {"images": images}, sizes)
    np.testing.assert_array_equal(shown, np.round(images[:num] * 255).astype(np.uint8))


@settings(max_examples=12, deadline=None)
@given(st.data(), _SIZES, st.sampled_from([2, 5]))
def test_a_random_k_depends_on_the_data_only(data: st.DataObject, sizes: list[int], num: int) -> None:
    images = _images(sum(sizes))
    summary = summaries.ShowImages(images="x", num_images=num, keep="random", seed=3)
    order = data.draw(st.permutations(range(len(sizes))))
    shown = _merged(summary, {"images": images}, sizes, list(order))
    np.testing.assert_array_equal(shown, _merged(summary, {"images": images}, [len(images)]))
    assert len(shown) == min(num, len(images))


def test_a_random_choice_is_uniform_and_follows_its_seed() -> None:
    values = np.arange(100, dtype=np.float32)
    chosen = np.zeros(100)
    for seed in range(200):
        state = summaries.SampleState.from_values({"x": values}, num=10, keep="random", seed=seed)
        chosen[state.compute()["x"].astype(int)] += 1
    assert chosen.sum() == 2000
    # Each is chosen Binomial(200, 0.1) times: mean 20, standard deviation 4.2; 5 of these is one in a million.
    assert chosen.min() > 0 and chosen.max() < 42


def test_masked_examples_are_not_there() -> None:
    images, mask = _images(6), np.asarray([0, 1, 0, 1, 1, 0], bool)
    shown = _merged(summaries.ShowImages(images="x", num_images=2), {"images": images, "mask": mask}, [3, 3])
    np.testing.assert_array_equal(shown, np.round(images[[1, 3]] * 255).astype(np.uint8))
    nothing = _merged(summaries.ShowImages(images="x"), {"images": images, "mask": np.zeros(6, bool)}, [3, 3])
    assert nothing.shape == (0, 3, 4, 3)


def test_a_padding_mask_reaches_a_summary() -> None:
    context = {"batch": {"image": _images(4)}}
    state = summaries.ShowImages(images="batch.image").get_state_from_context(
        context, padding_mask=jnp.asarray([True, True, False, False])
    )
    assert metrics.to_host(state).compute().shape == (2, 3, 4, 3)


@pytest.mark.parametrize(
    ("images", "options", "first_pixel"),
    [
        (np.full((1, 2, 2, 1), 0.5, np.float32), {}, (128, 128, 128)),
        (np.full((1, 2, 2), 255, np.uint8), {}, (255, 255, 255)),
        (np.full((1, 2, 2, 3), -1.0, np.float32), {"in_vrange": (-1, 1)}, (0, 0, 0)),
        (np.full((1, 2, 2, 4), 0.0, np.float32), {}, (255, 255, 255)),
        (np.full((1, 2, 2, 2), 1.0, np.float32), {}, (255, 255, 0)),
        (np.full((1, 2, 2, 1), np.nan, np.float32), {}, (0, 0, 0)),
        (np.full((1, 1, 2, 2, 3), 1.0, np.float32), {"rearrange": "b t h w c -> (b t) h w c"}, (255, 255, 255)),
        (np.full((1, 2, 2, 1), 1.0, np.float32), {"cmap": "viridis"}, (253, 231, 37)),
    ],
)
def test_values_become_colours(images: np.ndarray, options: dict, first_pixel: tuple) -> None:
    shown = summaries.ShowImages(images="x", **options)(images=images)
    assert tuple(shown[0, 0, 0]) == first_pixel


def test_differences() -> None:
    left, right = np.zeros((1, 2, 2, 3), np.float32), np.ones((1, 2, 2, 3), np.float32)
    assert (
        summaries.ShowDifferenceImages(images1="a", images2="b", num_images=1)(images1=left, images2=right).min() == 255
    )
    with pytest.raises(ValueError, match="differ"):
        summaries.ShowDifferenceImages(images1="a", images2="b", num_images=1)(images1=left, images2=right[:, :1])


def test_boxes_are_outlined_where_they_are() -> None:
    images = np.zeros((1, 11, 11, 3), np.float32)
    boxes = np.asarray([[[0.2, 0.3, 0.6, 0.8], [0, 0, 0, 0], [np.nan, 0, 1, 1]]], np.float32)
    shown = summaries.ShowBoxes(images="x", boxes="b")(images=images, boxes=boxes)[0]
    expected = np.zeros((11, 11), bool)
    expected[[2, 6], 3:9] = True
    expected[2:7, [3, 8]] = True
    np.testing.assert_array_equal(shown.any(axis=-1), expected)


def test_segments_have_one_colour_each() -> None:
    labels = np.asarray([[[0, 1], [2, 1]]])
    shown = summaries.ShowSegmentations(segmentations="s")(segmentations=labels)[0]
    colors = np.round(summaries.palette(3) * 255).astype(np.uint8)
    np.testing.assert_array_equal(shown, colors[labels[0]])
    over = summaries.ShowSegmentations(segmentations="s", images="x", opacity=0.5)
    mixed = over(segmentations=labels, images=np.ones((1, 2, 2, 3), np.float32))[0]
    np.testing.assert_allclose(mixed, (255 + colors[labels[0]].astype(float)) / 2, atol=1)


def test_texts_from_strings_and_from_bytes() -> None:
    summary = summaries.ShowTexts(texts="t", num_texts=2)
    assert summary(texts=["grüß", b"gott", "x"]) == ["grüß", "gott"]
    rows = np.zeros((3, 8), np.uint8)
    rows[0, :6] = list("grüß".encode())
    rows[1, :4] = list(b"gott")
    assert _merged(summary, {"texts": rows}, [1, 2]) == ["grüß", "gott"]
    chosen = summaries.ShowTexts(texts="t", num_texts=2, keep="random")
    states = [chosen.get_state(texts=[text]) for text in "abcdef"]
    backwards = metrics.reduce_states(reversed(states)).compute()
    assert set(metrics.reduce_states(states).compute()) == set(backwards) and len(backwards) == 2


def test_histograms_are_exact_up_to_the_values_kept() -> None:
    values = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    values[0, 0] = np.inf
    shown = _merged(summaries.HistogramSummary(tensor="x", num_buckets=10), {"tensor": values}, [13, 27])
    counts, edges = np.histogram(values[np.isfinite(values)], bins=10)
    np.testing.assert_array_equal(shown.counts, counts)
    np.testing.assert_allclose(shown.edges, edges, atol=1e-6)
    few = _merged(summaries.HistogramSummary(tensor="x", num_values=50), {"tensor": values}, [13, 27])
    assert few.counts.sum() == 50


def test_a_grid_shows_every_picture() -> None:
    pictures = np.stack([np.full((2, 3, 3), shade, np.uint8) for shade in (10, 20, 30, 40, 50)])
    canvas = summaries.grid(pictures, columns=3, gap=1)
    assert canvas.shape == (5, 11, 3)
    assert [canvas[y, x, 0] for y, x in ((0, 0), (0, 4), (0, 8), (3, 0), (3, 4), (3, 8))] == [10, 20, 30, 40, 50, 255]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: summaries.ShowImages(images="x", keep="last"), "neither 'first' nor 'random'"),
        (lambda: summaries.ShowImages(images="x", num_images=0), "at least 1"),
        (lambda: summaries.ShowImages(images="x")(images=np.ones((2, 5, 5, 7))), "are not 'b h w c'"),
        (lambda: summaries.ShowImages(images="x")(images=np.ones((2, 5))), "are not 'b h w c'"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_states_do_not_merge_inside_jit() -> None:
    summary = summaries.ShowImages(images="x")

    @jax.jit
    def twice(images: jax.Array) -> Any:
        state = summary.get_state(images)
        return state.merge(state)

    with pytest.raises(TypeError, match="cannot merge or compute inside jit"):
        twice(_images(2))
