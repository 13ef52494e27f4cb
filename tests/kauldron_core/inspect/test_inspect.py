"""What can be seen of an experiment before it trains."""

from __future__ import annotations

import base64
import functools
import json
import re
import struct
import zlib
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kauldron_core import kd, kontext
from kauldron_core.summaries.png import encode_png
from tests.kauldron_core import experiments
from tests.kauldron_core.modules.cases import NnxClassifier

BATCH = {
    "image": np.linspace(0, 1, 4 * 6 * 8 * 3, dtype=np.float32).reshape(4, 6, 8, 3),
    "label": np.arange(4),
    "nested": {"text": np.asarray(["a", "b<c", "d", "e"]), "bad": np.asarray([1.0, np.nan, np.inf, 3.0])},
}


@functools.cache
def _trainer() -> kd.train.Trainer:
    return experiments.trainer()


@flax.struct.dataclass
class Pair:
    left: Any
    right: Any


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"a": np.zeros((2, 3), np.uint8)}, {"a": "ui8[2 3]"}),
        (jax.ShapeDtypeStruct((), jnp.bfloat16), "bf16[]"),
        ([np.zeros(2, bool), np.zeros(1, np.complex64)], ["bool[2]", "c64[1]"]),
        ((jax.random.key(0), jax.random.PRNGKey(0)), ["key<fry>[]", "ui32[2]"]),
        (Pair(left=np.float64(1), right={1: None}), {"left": "f64[]", "right": {"1": None}}),
        (optax.EmptyState(), {}),
        ({"text": "x", "number": 1.5, "other": int}, {"text": "x", "number": 1.5, "other": "<class 'int'>"}),
    ],
)
def test_specs_are_data_for_json(tree: Any, expected: Any) -> None:
    assert kd.inspect.json_spec_like(tree) == expected
    assert json.loads(json.dumps(kd.inspect.json_spec_like(tree))) == expected


def test_an_element_spec_is_told_in_json() -> None:
    assert kd.inspect.json_spec_like(_trainer().train_ds.element_spec) == {"label": "i32[16]", "x": "f32[16 4]"}


def test_statistics_leave_out_and_count_what_is_not_finite() -> None:
    table = kd.inspect.get_batch_stats(BATCH)
    rows = {row["Name"]: row for row in table.to_dicts()}
    assert rows["batch.nested.bad"]["NonFinite"] == 2
    assert (rows["batch.nested.bad"]["Min"], rows["batch.nested.bad"]["Mean"]) == (1.0, 2.0)
    assert rows["batch.label"] | {"StdDev": 0} == {
        "Name": "batch.label", "Dtype": "int64", "Shape": "(4,)", "Min": 0.0, "Max": 3.0, "Mean": 1.5, "StdDev": 0,
        "NonFinite": 0,
    }  # fmt: skip
    assert rows["batch.nested.text"]["Mean"] is None


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.int8, np.uint8, np.bool_, np.float16]),
        hnp.array_shapes(max_dims=3, min_side=0),
    )
)
def test_any_array_has_statistics(array: np.ndarray) -> None:
    ((row,), finite) = kd.inspect.get_batch_stats({"a": array}).to_dicts(), array[np.isfinite(array)]
    if finite.size:
        assert row["Mean"] == pytest.approx(finite.astype(np.float64).mean())
        assert row["NonFinite"] == array.size - finite.size
    else:
        assert row["Mean"] is None


def test_parameters_are_listed_with_their_sizes_and_the_total() -> None:
    specs = kd.inspect.get_param_overview(_trainer())
    state = _trainer().init_state()
    table = kd.inspect.get_param_overview(state)
    assert table.column("Path") == ["Dense_0.bias", "Dense_0.kernel", "Dense_1.bias", "Dense_1.kernel"]
    assert table.column("Shape") == specs.column("Shape") == ["(8,)", "(4, 8)", "(3,)", "(8, 3)"]
    assert sum(table.column("Size")) == 67
    assert table.title.startswith("67 parameters")
    kernel = state.params["Dense_0"]["kernel"]
    assert table.column("StdDev")[1] == pytest.approx(float(kernel.std()), rel=1e-5)
    assert set(specs.column("Mean")) == {None}
    assert kd.inspect.get_param_overview(state.params).rows == table.rows


@pytest.mark.parametrize("kind", ["linen", "nnx", "multi"])
def test_every_listed_key_leads_to_what_it_says(kind: str) -> None:
    part = kd.optim.Part(optimizer=optax.sgd(0.1), params="kernel", losses=("xent",))
    fields: dict[str, Any] = {
        "linen": {},
        "nnx": {"model": kd.nn.Nnx(functools.partial(NnxClassifier, 4, 3), inputs="batch.x")},
        "multi": {
            "optimizer": kd.optim.MultiOptimizer(parts={"one": part}),
            "trainstep": kd.train.MultiTrainStep(),
        },
    }[kind]
    trainer = experiments.trainer(**fields)
    table, specs = kd.inspect.get_context_structure(trainer), kd.inspect.context_specs(trainer)
    assert len(set(table.column("Key"))) == len(table)
    for row in table.to_dicts():
        leaf = kontext.get_by_path(specs, row["Key"])
        assert kd.inspect.json_spec_like(leaf) == row["Spec"]
    keys = set(table.column("Key"))
    assert {"step", "batch.x", "preds", "loss_total", "loss_states.xent.total"} <= keys
    inner = {
        "linen": "interms.Dense_0.__call__[0]",
        "nnx": "interms.encoders[0].linear.__call__[0]",
        "multi": "subgrads.one.Dense_0.kernel",
    }
    assert inner[kind] in keys


def test_the_cost_of_a_step_grows_with_the_batch() -> None:
    small, large = (
        kd.inspect.get_step_cost(experiments.trainer(train_ds=experiments.points(batch_size=size))) for size in (8, 64)
    )
    # Two matrix products forward and three back (none for the inputs), each 2 b n m operations.
    products = 2 * 64 * (4 * 8 * 2 + 8 * 3 * 3)
    assert large.flops is not None and small.flops is not None
    assert products < large.flops < 20 * products
    assert 2 < large.flops / small.flops < 8
    assert large.bytes_accessed is not None and large.bytes_accessed > (small.bytes_accessed or 0)
    assert large.peak_bytes is not None and large.peak_bytes >= 64 * (4 + 1) * 4
    assert "stablehlo" in kd.inspect.lower_trainstep(_trainer()).as_text()


def test_a_batch_is_shown_as_pictures_and_text_by_the_notebook_alone(capsys: Any) -> None:
    view = kd.inspect.plot_batch(BATCH, num_examples=3)
    assert len(view.examples) == 3
    assert view.examples[1]["image"].shape == (6, 8, 3)
    assert view.examples[1]["nested.text"] == "b<c"
    page = view._repr_html_()
    assert page.count("data:image/png;base64,") == 3
    assert "b&lt;c" in page and "b<c" not in page
    assert repr(view) == str(kd.inspect.get_batch_stats(BATCH))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("array", "is_picture"),
    [
        (np.zeros((2, 8, 8, 3), np.uint8), True),
        (np.zeros((2, 8, 8), np.float32), True),
        (np.zeros((2, 8, 8, 1), bool), True),
        (np.zeros((2, 8, 8), np.int32), False),
        (np.zeros((2, 8, 8, 7), np.float32), False),
        (np.zeros((2, 3, 3), np.float32), False),
        (np.zeros((2, 2), np.float32), False),
    ],
)
def test_images_are_told_from_other_arrays(array: np.ndarray, is_picture: bool) -> None:
    examples = kd.inspect.plot_batch({"a": array}).examples
    shown = [example.get("a") for example in examples]
    assert all(isinstance(value, np.ndarray) == is_picture for value in shown) and (len(shown) == 2 or not is_picture)


def test_floats_outside_of_the_unit_range_are_scaled() -> None:
    images = np.linspace(-3, 3, 2 * 64, dtype=np.float32).reshape(2, 8, 8)
    pictures = [example["a"] for example in kd.inspect.plot_batch({"a": images}).examples]
    assert pictures[0].min() == 0 and pictures[1].max() == 255


def _decode(data: bytes) -> np.ndarray:
    """Returns the picture in a PNG file as `encode_png` writes it; every checksum is checked."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert rest == [8, 2, 0, 0, 0]
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_a_png_holds_the_picture(picture: np.ndarray) -> None:
    np.testing.assert_array_equal(_decode(encode_png(picture)), picture)


def test_a_shown_picture_is_the_one_in_the_batch() -> None:
    page = kd.inspect.plot_batch({"a": np.full((1, 4, 4, 3), 200, np.uint8)})._repr_html_()
    (data,) = re.findall(r"base64,([A-Za-z0-9+/=]+)", page)
    assert (_decode(base64.b64decode(data)) == 200).all()


def test_tables_print_show_and_can_be_read() -> None:
    table = kd.inspect.Table(("Name", "Value"), (("a", 1.23456789), ("b<", None), ("c", 12345)), title="Three rows")
    assert str(table).splitlines() == [
        "Three rows",
        "Name  Value",
        "----  ------",
        "a     1.235",
        "b<",
        "c     12,345",
    ]
    assert "b&lt;" in table._repr_html_() and table._repr_html_().count("<tr>") == 4
    assert table.column("Value") == [1.23456789, None, 12345]
    assert (len(table), table.to_dicts()[0]) == (3, {"Name": "a", "Value": 1.23456789})


def test_schedules_are_curves() -> None:
    schedules = {"lr": kd.optim.Schedule(name="linear", value=2.0, num_steps=10), "<w>": lambda step: 1.0}
    view = kd.inspect.plot_schedules(schedules, 10)
    np.testing.assert_allclose(view.values["lr"], 2 - view.steps * 0.2, rtol=1e-5)
    assert list(view.steps) == list(range(11))
    page = view._repr_html_()
    assert page.count("<polyline") == 2 and "&lt;w&gt;" in page and "nan" not in page
    assert repr(view).splitlines()[0] == "lr: 2 .. 0, at most 2"
