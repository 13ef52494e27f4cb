"""Every transform: what it does to an example, and what every one of them promises."""

import copy
import pickle

import grain
import jax
import numpy as np
import pytest

from kauldron_core import data
from kauldron_core.data import transforms
from kauldron_core.errors import ConfigError

IMAGE = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
EXAMPLE = {
    "image": IMAGE,
    "mask": IMAGE[..., :1],
    "x": np.linspace(-1, 1, 4, dtype=np.float32),
    "label": 3,
    "text": "héllo",
    "tokens": np.array([5, 6, 7]),
}

# One of each, with the entries it changes. Whatever is listed here is put through every check below.
ALL = {
    "AddConstants": data.AddConstants({"source": 1}),
    "Cast": data.Cast(key="x", dtype=np.float16),
    "CenterCrop": data.CenterCrop(key="image", shape=(4, 4, None)),
    "Elements": data.Elements(keep=["x", "label"], rename={"tokens": "ids"}, copy={"x": "y"}),
    "Gather": data.Gather(key="image", axis=-1, indices=(2, 0)),
    "OneHot": data.OneHot(key={"label": "target"}, num_classes=5),
    "Pad": data.Pad(key="tokens", length=5, value=-1),
    "RandomCrop": data.RandomCrop(key=("image", "mask"), shape=(3, 5, None)),
    "RandomFlipLeftRight": data.RandomFlipLeftRight(key="image"),
    "Rearrange": data.Rearrange(key="image", pattern="(h a) w c -> h (a w c)", axes_lengths={"a": 2}),
    "Rename": data.Rename({"x": "y"}),
    "Resize": data.Resize(key="image", size=(3, 4)),
    "Tokenize": data.Tokenize(key="text"),
    "Truncate": data.Truncate(key="tokens", length=2),
    "ValueRange": data.ValueRange(key="image", vrange=(-1, 1)),
}
ABSTRACT = {"ElementWiseRandomTransform", "ElementWiseTransform", "MapTransform", "RandomMapTransform"}
# They decide which examples there are, and are tested as part of a pipeline.
OF_MANY = {"Filter", "Pack"}


def run(transform, example, seed=2):
    if hasattr(transform, "random_map"):
        return transform.random_map(example, np.random.default_rng(seed))
    return transform.map(example)


def assert_same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.asarray(a).dtype == np.asarray(b).dtype


def test_every_transform_is_in_the_table():
    assert set(ALL) == set(transforms.__all__) - ABSTRACT - OF_MANY
    assert set(transforms.__all__) <= set(data.__all__)


@pytest.mark.parametrize("name", ALL)
def test_an_example_is_left_as_it_was(name):
    before = copy.deepcopy(EXAMPLE)
    changed = run(ALL[name], EXAMPLE)
    assert_same(before, EXAMPLE)
    with pytest.raises(AssertionError):
        assert_same(changed, EXAMPLE)


@pytest.mark.parametrize("name", ALL)
def test_a_transform_is_a_value_that_pickles(name):
    assert pickle.loads(pickle.dumps(ALL[name])) == ALL[name]


@pytest.mark.parametrize("name", [name for name, t in ALL.items() if hasattr(t, "map_batch")])
def test_batches_are_transformed_as_their_examples_are(name):
    transform = ALL[name]
    examples = [{**EXAMPLE, "label": label, "x": EXAMPLE["x"] * label, "image": IMAGE + label} for label in range(3)]

    def stacked(elements):
        return jax.tree.map(lambda *leaves: np.stack(leaves), *elements)

    assert_same(transform.map_batch(stacked(examples)), stacked([transform.map(example) for example in examples]))


@pytest.mark.parametrize("name", [name for name, t in ALL.items() if hasattr(t, "key")])
def test_a_missing_entry_is_an_error_with_the_closest_match(name):
    transform = ALL[name]
    first, _ = transform._pairs()[0]
    misspelt = {key + "s" if key == first else key: value for key, value in EXAMPLE.items()}
    with pytest.raises(KeyError, match=rf"{name}: unknown entry '{first}'. Did you mean '{first}s'"):
        run(transform, misspelt)


@pytest.mark.parametrize("name", [name for name, t in ALL.items() if hasattr(t, "key")])
def test_transforms_of_entries_need_dictionaries(name):
    with pytest.raises(TypeError, match="dictionaries"):
        run(ALL[name], [1, 2])


def test_elements():
    assert set(ALL["Elements"].map(EXAMPLE)) == {"x", "label", "ids", "y"}
    assert set(data.Elements(drop="image").map(EXAMPLE)) == EXAMPLE.keys() - {"image"}
    renamed = data.Elements(drop=["x"], rename={"tokens": "x"}).map(EXAMPLE)
    np.testing.assert_array_equal(renamed["x"], EXAMPLE["tokens"])


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"keep": ["x"], "drop": ["label"]}, ConfigError),
        ({"keep": ["x"], "rename": {"x": "y"}}, KeyError),
        ({"keep": ["x"], "rename": {"label": "x"}}, KeyError),
        ({"drop": ["x"], "rename": {"x": "y"}}, KeyError),
        ({"rename": {"x": "a", "label": "a"}}, KeyError),
        ({"rename": {"x": "a"}, "copy": {"label": "a"}}, KeyError),
    ],
)
def test_elements_that_contradict_themselves_are_refused_when_made(settings, error):
    with pytest.raises(error):
        data.Elements(**settings)


@pytest.mark.parametrize(
    "elements",
    [
        data.Elements(keep=["nothing"]),
        data.Elements(drop=["nothing"]),
        data.Elements(rename={"nothing": "a"}),
        data.Elements(rename={"x": "label"}),
        data.Elements(copy={"x": "label"}),
        data.Elements(keep=["x"], copy={"x": "label"}),
        data.Rename({"x": "label"}),
        data.AddConstants({"x": 1}),
    ],
)
def test_missing_or_overwritten_entries_are_key_errors(elements):
    with pytest.raises(KeyError):
        elements.map(EXAMPLE)


def test_value_range_scales_and_clips():
    values = np.array([0, 51, 255, 300], np.int32)
    scaled = data.ValueRange(key="v", vrange=(-1, 1)).map({"v": values})["v"]
    np.testing.assert_allclose(scaled, [-1, -0.6, 1, 1], rtol=1e-6)
    assert scaled.dtype == np.float32
    loose = data.ValueRange(key="v", vrange=(1, 0), in_vrange=(0, 100), clip_values=False).map({"v": values})["v"]
    np.testing.assert_allclose(loose, [1, 0.49, -1.55, -2], rtol=1e-6)
    with pytest.raises(ConfigError, match="one point"):
        data.ValueRange(key="v", vrange=(0, 1), in_vrange=(2, 2))


def test_one_hot_refuses_numbers_that_are_no_class():
    assert ALL["OneHot"].map(EXAMPLE)["target"].tolist() == [0, 0, 0, 1, 0]
    for wrong in (-1, 5):
        with pytest.raises(ValueError, match=r"0 \.\.\. 4"):
            ALL["OneHot"].map({"label": wrong})


def test_rearrange_takes_plain_numbers():
    assert data.Rearrange(key="label", pattern="-> 1").map(EXAMPLE)["label"].tolist() == [3]


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic", "lanczos3"])
@pytest.mark.parametrize(("size", "antialias"), [((3, 4), True), ((3, 4), False), ((11, 5), True)])
def test_resize_gives_the_numbers_of_jax(method, size, antialias):
    image = np.random.default_rng(0).random((2, 6, 8, 3), np.float32)
    resize = data.Resize(key="image", size=size, method=method, antialias=antialias)
    expected = jax.image.resize(image, (2, *size, 3), method, antialias=antialias)
    np.testing.assert_allclose(resize.map({"image": image})["image"], expected, atol=2e-6)


def test_resize_by_one_edge_and_by_default_method():
    def shape(**settings):
        return data.Resize(key="image", **settings).map(EXAMPLE)["image"].shape

    assert shape(min_size=3) == (3, 4, 3)
    assert shape(max_size=4) == (3, 4, 3)
    assert data.Resize(key="image", size=(3, 4), method="cubic").map(EXAMPLE)["image"].dtype == np.uint8
    np.testing.assert_array_equal(ALL["Resize"].map(EXAMPLE)["image"], IMAGE[1::2, 1::2])
    with pytest.raises(ConfigError, match="exactly one"):
        data.Resize(key="image")
    with pytest.raises(ConfigError, match="exactly one"):
        data.Resize(key="image", size=(1, 1), min_size=2)


def test_crops():
    np.testing.assert_array_equal(ALL["CenterCrop"].map(EXAMPLE)["image"], IMAGE[1:5, 2:6])
    cropped = run(ALL["RandomCrop"], EXAMPLE)
    np.testing.assert_array_equal(cropped["mask"], cropped["image"][..., :1])
    assert cropped["image"].shape == (3, 5, 3)
    places = {run(ALL["RandomCrop"], EXAMPLE, seed)["image"][0, 0, 0] for seed in range(100)}
    assert len(places) == 16
    for crop in (data.CenterCrop(key="image", shape=(7, 1, None)), data.RandomCrop(key="image", shape=(7, 1, None))):
        with pytest.raises(ValueError, match="does not fit"):
            run(crop, EXAMPLE)
    with pytest.raises(ValueError, match="2 dimensions"):
        data.CenterCrop(key="image", shape=(1, 1)).map(EXAMPLE)
    with pytest.raises(ValueError, match="different sizes"):
        run(ALL["RandomCrop"], {**EXAMPLE, "mask": IMAGE[1:, :, :1]})


def test_flips_are_fair():
    flipped = [np.array_equal(run(ALL["RandomFlipLeftRight"], EXAMPLE, s)["image"], IMAGE[:, ::-1]) for s in range(400)]
    assert 150 < sum(flipped) < 250


def test_pad_truncate_and_tokens():
    assert ALL["Pad"].map(EXAMPLE)["tokens"].tolist() == [5, 6, 7, -1, -1]
    assert ALL["Truncate"].map(EXAMPLE)["tokens"].tolist() == [5, 6]
    assert data.Truncate(key="tokens", length=9).map(EXAMPLE)["tokens"].tolist() == [5, 6, 7]
    with pytest.raises(ValueError, match="truncate first"):
        data.Pad(key="tokens", length=2).map(EXAMPLE)
    tokens = data.Tokenize(key="text", append_eos=True).map(EXAMPLE)["text"]
    assert tokens.tolist() == [byte + 3 for byte in "héllo".encode()] + [1]
    assert data.Tokenize(key="text", tokenizer=lambda text: [len(text)]).map(EXAMPLE)["text"].tolist() == [5]
    assert data.Tokenize(key="text").map({"text": b"a"})["text"].tolist() == [100]


def numbers(count, **settings):
    records = [{"id": number, "x": np.zeros(4)} for number in range(count)]
    defaults = {"batch_size": 4, "num_epochs": 1, "num_threads": 0, "seed": 0}
    return data.py.DataSource(records, **{**defaults, **settings})


class Noise(data.RandomMapTransform):
    def random_map(self, element, rng):
        return {**element, "noise": rng.random()}


def noise_by_place(ds, epoch_size):
    """Returns {(epoch, id): noise}."""
    values, epochs = {}, {}
    for batch in ds:
        for number, value in zip(batch["id"].tolist(), batch["noise"].tolist(), strict=True):
            epochs[number] = epochs.get(number, -1) + 1
            values[epochs[number], number] = value
    assert len(values) == len(set(values.values())) or epoch_size < 0
    return values


def test_random_transforms_depend_on_record_epoch_and_seed_only():
    ds = numbers(12, transforms=[Noise()], num_epochs=2)
    expected = noise_by_place(ds, 12)
    variants = [
        numbers(12, transforms=[Noise()], num_epochs=2, batch_size=6),
        numbers(12, transforms=[Noise()], num_epochs=2, shuffle=True),
        numbers(12, transforms=[Noise()], num_epochs=2, num_threads=2),
    ]
    for variant in variants:
        assert noise_by_place(variant, 12) == expected
    hosts = [numbers(12, transforms=[Noise()], num_epochs=2, shard_index=h, shard_count=2) for h in range(2)]
    assert noise_by_place(hosts[0], 12) | noise_by_place(hosts[1], 12) == expected
    assert noise_by_place(numbers(12, transforms=[Noise()], num_epochs=2, seed=1), 12) != expected
    in_memory = data.InMemoryPipeline(
        loader=lambda: {"id": np.arange(12)}, batch_size=4, seed=0, num_epochs=2, transforms=[Noise()]
    )
    assert noise_by_place(in_memory, 12) == expected


def test_two_random_transforms_draw_different_numbers():
    ds = numbers(4, transforms=[Noise(), data.Rename({"noise": "other"}), Noise()])
    (batch,) = ds
    assert not set(batch["noise"]) & set(batch["other"])


def test_random_transforms_need_a_seed():
    with pytest.raises(ConfigError, match="no seed"):
        next(iter(numbers(4, seed=None, transforms=[Noise()])))


@pytest.mark.parametrize("make", [numbers, None])
def test_filters_leave_an_exact_smaller_set(make):
    def kept(**settings):
        common = {"transforms": [data.Rename({"id": "n"}), data.Filter(lambda e: e["n"] % 3 == 0)], **settings}
        if make:
            return make(20, **common)
        return data.InMemoryPipeline(
            loader=lambda: {"id": np.arange(20)}, **{"batch_size": 4, "num_epochs": 1, **common}
        )

    assert [batch["n"].tolist() for batch in kept(batch_drop_remainder=False)] == [[0, 3, 6, 9], [12, 15, 18]]
    assert len(kept()) == 1
    hosts = [kept(batch_drop_remainder="pad", shard_index=host, shard_count=2) for host in range(2)]
    seen = [[batch["n"][batch[data.PADDING_MASK]].tolist() for batch in host] for host in hosts]
    assert seen == [[[0, 6], [12, 18]], [[3, 9], [15]]]


def test_a_filter_that_keeps_nothing_leaves_an_empty_set():
    with pytest.raises(ConfigError, match="empty"):
        iter(numbers(4, transforms=[data.Filter(lambda element: False)]))


def test_transforms_in_the_wrong_place_are_refused_when_made():
    with pytest.raises(ConfigError, match="Put it first"):
        numbers(4, transforms=[Noise(), data.Filter(bool)])
    with pytest.raises(ConfigError, match="batch_transforms"):
        numbers(4, batch_transforms=[Noise()])
    with pytest.raises(ConfigError, match="3 is no transform"):
        numbers(4, transforms=[3])


def test_transforms_may_be_named():
    ds = numbers(4, transforms={"drop": data.Elements(drop=["x"]), "double": lambda e: {"id": e["id"] * 2}})
    assert [batch["id"].tolist() for batch in ds] == [[0, 2, 4, 6]]


def test_transforms_of_grain_serve_as_they_are():
    class Double(grain.transforms.Map):
        def map(self, element):
            return {**element, "id": element["id"] * 2}

    class Draw(grain.transforms.RandomMap):
        def random_map(self, element, rng):
            return {**element, "draw": rng.integers(100)}

    class Even(grain.transforms.Filter):
        def filter(self, element):
            return element["id"] % 2 == 0

    (batch,) = numbers(8, transforms=[Even(), Double(), Draw()])
    assert batch["id"].tolist() == [0, 4, 8, 12]
    assert batch["draw"].shape == (4,)
