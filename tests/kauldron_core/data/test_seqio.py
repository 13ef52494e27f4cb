"""`SeqIO`: tasks and mixtures offline; every example once an epoch on any number of hosts, and exact states."""

import dataclasses
import functools
import itertools
import json

import numpy as np
import pytest

from kauldron_core import data
from kauldron_core.errors import ConfigError

# Names the tests that load TensorFlow; what is refused before must not.
seqio_test = pytest.mark.seqio

LENGTH = 16
COUNT = 10
EOS_ID = 1


def texts(count, name):
    """Returns texts that tell their number, of different lengths."""
    return [f"{name}{number}" + "x" * (number % 5) for number in range(count)]


def encoded(text):
    return [byte + 3 for byte in text.encode()] + [EOS_ID]


@functools.cache
def task(name="a", count=COUNT, has_seed=True):
    import seqio
    import tensorflow as tf

    def seeded(split, shuffle_files, seed=None):
        del split, shuffle_files, seed
        return tf.data.Dataset.from_tensor_slices({"text": texts(count, name)})

    def seedless(split, shuffle_files):
        return seeded(split, shuffle_files)

    return seqio.Task(
        f"test_{name}",
        source=seqio.FunctionDataSource(seeded if has_seed else seedless, splits=["train", "validation"]),
        preprocessors=[
            functools.partial(seqio.preprocessors.rekey, key_map={"targets": "text"}),
            seqio.preprocessors.tokenize,
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features={"targets": seqio.Feature(seqio.ByteVocabulary())},
    )


def mixture():
    import seqio

    tasks = [(task("a"), 3.0), (task("b", 4), 1.0)]
    return seqio.Mixture("test_mixture", tasks)


def pipeline(source=task, **settings):
    defaults = {"feature_lengths": {"targets": LENGTH}, "feature_converter": "lm", "batch_size": 4, "num_epochs": 1}
    return data.SeqIO(source, **{**defaults, "batch_drop_remainder": "pad", **settings})


def real_rows(batch):
    rows = batch["decoder_target_tokens"]
    return rows[batch[data.PADDING_MASK]] if data.PADDING_MASK in batch else rows


def rows(batches):
    """Returns the texts' tokens without padding."""
    return [row[row > 0].tolist() for batch in batches for row in real_rows(batch)]


def in_any_order(found):
    return sorted(map(tuple, found))


@seqio_test
def test_a_task_gives_the_model_features_of_its_examples_in_order():
    ds = pipeline()
    batches = list(ds)
    assert rows(batches) == [encoded(text) for text in texts(COUNT, "a")]
    first = batches[0]
    np.testing.assert_array_equal(first["decoder_input_tokens"][:, 1:], first["decoder_target_tokens"][:, :-1])
    assert ds.element_spec["decoder_target_tokens"].shape == (4, LENGTH)
    assert ds.element_spec["decoder_target_tokens"].dtype == np.int32
    assert [len(batch["decoder_target_tokens"]) for batch in batches] == [4, 4, 4]


@seqio_test
@pytest.mark.parametrize("pack", [False, True])
def test_shuffled_epochs_hold_every_example_once_on_any_number_of_hosts(pack):
    ds = pipeline(shuffle=True, seed=3, num_epochs=2, pack=pack)
    whole = list(ds)
    tokens = list(itertools.chain(*rows(whole)))
    assert sorted(tokens) == sorted(2 * list(itertools.chain(*map(encoded, texts(COUNT, "a")))))
    if not pack:
        epochs = rows(whole)[:COUNT], rows(whole)[COUNT:]
        assert epochs[0] != epochs[1] and in_any_order(epochs[0]) == in_any_order(epochs[1])
    hosts = [list(dataclasses.replace(ds, shard_index=host, shard_count=2)) for host in range(2)]
    for batch, *parts in zip(whole, *hosts, strict=True):
        assert in_any_order(rows(parts)) == in_any_order(rows([batch]))


@seqio_test
def test_packed_rows_tell_their_segments():
    (batch, *_) = pipeline(pack=True)
    segments, positions = batch["decoder_segment_ids"], batch["decoder_positions"]
    assert segments.max() > 1
    np.testing.assert_array_equal(segments > 0, batch["decoder_target_tokens"] > 0)
    assert (positions[:, 1:][np.diff(segments) > 0] == 0).all()


@seqio_test
@pytest.mark.parametrize(
    ("source", "settings", "consumed"),
    [
        (task, {"num_epochs": 3}, 5),
        (functools.partial(task, "p", 40), {"num_epochs": None, "pack": True}, 6),
        (mixture, {"num_epochs": None}, 7),
    ],
)
def test_a_state_gives_the_very_next_batch(source, settings, consumed):
    """D06: a state gives the very next batch."""
    ds = pipeline(source, shuffle=True, seed=5, **settings).take(consumed + 4)
    iterator = iter(ds)
    for _ in range(consumed):
        next(iterator)
    resumed = iter(dataclasses.replace(ds))
    resumed.set_state(json.loads(json.dumps(iterator.get_state())))
    for ours, theirs in itertools.zip_longest(resumed, iterator):
        assert ours.keys() == theirs.keys()
        for key in ours:
            np.testing.assert_array_equal(ours[key], theirs[key])
    for other in ({"seed": 6}, {"shuffle": False}, {"feature_lengths": {"targets": 8}}):
        with pytest.raises(ConfigError, match=next(iter(other))):
            iter(dataclasses.replace(ds, **other)).set_state(iterator.get_state())


@seqio_test
def test_a_mixture_is_endless_at_its_rates_and_for_evaluation_whole():
    """E18: a mixture is endless at its rates and for evaluation whole."""
    endless = pipeline(mixture, num_epochs=None, shuffle=True, seed=0)
    first_letters = [row[0] - 3 for row in rows(endless.take(50))]
    assert 0.65 < first_letters.count(ord("a")) / 200 < 0.85
    expected = [encoded(text) for text in (*texts(COUNT, "a"), *texts(4, "b"))]
    assert rows(endless.for_eval()) == expected
    whole = rows(dataclasses.replace(endless, num_epochs=1))
    assert in_any_order(whole) == in_any_order(expected) and whole != expected


@seqio_test
def test_features_without_a_converter_are_padded_by_transforms():
    steps = [data.Elements(keep=["targets"]), data.Pad(key="targets", length=LENGTH)]
    (batch, *_) = pipeline(feature_converter=None, transforms=steps, batch_drop_remainder=True)
    assert batch["targets"].shape == (4, LENGTH)
    assert batch["targets"][0, :3].tolist() == encoded("a0")


@seqio_test
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "trian"}, r"unknown split 'trian'\. Did you mean 'train'"),
        ({"source": "test_of_nobody"}, "unknown task 'test_of_nobody'"),
        ({"source": lambda: 3}, "neither a task nor a mixture"),
        ({"source": functools.partial(task, "c", has_seed=False)}, "seed"),
        ({"feature_converter": "enc_dec"}, "inputs"),
        ({"shuffle": True}, "has no seed"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_batch(settings, message):
    with pytest.raises(ConfigError, match=message):
        next(iter(pipeline(**settings)))


@seqio_test
def test_tensorflow_is_left_the_processor_only():
    import tensorflow as tf

    next(iter(pipeline()))
    assert {device.device_type for device in tf.config.get_visible_devices()} == {"CPU"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"feature_converter": "lmm"}, r"unknown feature converter 'lmm'\. Did you mean 'lm'"),
        ({"feature_converter": None, "pack": True}, "pack=True needs"),
        ({"feature_lengths": {"targets": 0}}, "positive lengths"),
        ({"transforms": [data.Pack({"targets": 4})]}, "cannot pack"),
    ],
)
def test_wrong_settings_are_refused_without_loading_anything(settings, message):
    with pytest.raises(ConfigError, match=message):
        pipeline(**settings)
