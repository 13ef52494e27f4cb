"""`typechecked` on everything it can stand on, and what it prints."""

import dataclasses
import re
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron_core import ktyping
from kauldron_core.ktyping import (
    Bool,
    Float,
    Float32,
    Int,
    PyTree,
    ScalarFloat,
    Shape,
    SInt,
    TypeCheckError,
    UInt8,
    typechecked,
)


def _f(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@typechecked
def attention(query: Float["*b n d"], key: Float["*b m d"], mask: Bool["*b n m"] | None = None) -> Float["*b n m"]:
    return jnp.einsum("...nd,...md->...nm", query, key)


def test_names_bind_across_arguments_and_the_result() -> None:
    assert attention(_f(2, 3, 4), _f(2, 5, 4)).shape == (2, 3, 5)
    assert attention(_f(3, 4), key=_f(5, 4), mask=None).shape == (3, 5)
    with pytest.raises(TypeCheckError, match=r"key does not fit .*: axis 2 is 6, but d is 4 \(bound by query\)"):
        attention(_f(2, 3, 4), _f(2, 5, 6))


def test_the_error_says_function_inputs_and_dims_but_no_contents() -> None:
    """T06: the error says function inputs and dims but no contents."""
    with pytest.raises(TypeCheckError) as caught:
        attention(np.full((2, 1000, 4), 0.123), np.full((2, 5, 6), 0.123))
    text = str(caught.value)
    assert "0.123" not in text and len(text) < 800
    for expected in ("Function:", "attention", "Inputs:", "key: Float['*b m d'] = float64[2, 5, 6] (numpy)",
                     "Inferred Dims:", "d: 4 (bound by query)"):  # fmt: skip
        assert expected in text


def test_a_computed_size_is_checked_and_only_declared_names_are_listed() -> None:
    """T04: a computed size is checked and only declared names are listed."""

    @typechecked
    def padded(x: Float["batch+1"], y: Float["batch"]) -> int:
        return len(y)

    assert padded(_f(4), _f(3)) == 3
    with pytest.raises(TypeCheckError) as caught:
        padded(_f(4), _f(4))
    dims = str(caught.value).partition("Inferred Dims:")[2]
    assert "batch+1" not in dims


def test_a_size_computed_from_an_unbound_name_is_an_error() -> None:
    @typechecked
    def lost(x: Float["k+1"]) -> None: ...

    with pytest.raises(TypeCheckError, match="computed from a name that no argument binds"):
        lost(_f(4))


def test_names_do_not_leak_between_calls() -> None:
    @typechecked
    def identity(x: Float["n"]) -> Float["n"]:
        return x

    assert identity(_f(2)).shape == (2,)
    assert identity(_f(3)).shape == (3,)


def test_unions_are_matched_without_greed() -> None:
    @typechecked
    def either(x: Float["a b"] | Float["b a"], y: Float["a"]) -> int:
        return ktyping.dim["a"]

    assert either(_f(2, 3), _f(2)) == 2
    assert either(_f(2, 3), _f(3)) == 3
    with pytest.raises(TypeCheckError):
        either(_f(2, 3), _f(4))


def test_dtypes_can_be_joined_before_the_shape() -> None:
    @typechecked
    def image(x: (Float | UInt8)["h w 3|1"]) -> None: ...

    image(_f(4, 4, 3))
    image(np.ones((4, 4, 1), np.uint8))
    with pytest.raises(TypeCheckError, match="dtype is int32"):
        image(np.ones((4, 4, 1), np.int32))
    with pytest.raises(TypeCheckError, match=r"axis 2 is 2, but it must be one of 3\|1"):
        image(_f(4, 4, 2))


@pytest.mark.parametrize(
    ("hint", "fits", "misfits"),
    [
        (Int, ["int8", "uint8", "int4", "uint32"], ["float32", "bool"]),
        (SInt, ["int8", "int32"], ["uint8"]),
        (Float, ["float32", "bfloat16", "float8_e4m3fn", "float16"], ["int32", "complex64"]),
        (ktyping.UInt, ["uint8", "uint4"], ["int8"]),
        (ktyping.Num, ["int32", "float32", "complex64"], ["bool"]),
        (ktyping.Complex, ["complex64"], ["float32"]),
        (Bool, ["bool"], ["int8"]),
        (Float32, ["float32"], ["bfloat16"]),
        (ktyping.BFloat16, ["bfloat16"], ["float16"]),
        (ktyping.Int4, ["int4"], ["int8"]),
        (ktyping.Float8e4m3fn, ["float8_e4m3fn"], ["float8_e5m2"]),
        (ktyping.Array, ["bool", "float32", "int4"], []),
    ],
)
def test_dtypes(hint: typing.Any, fits: list[str], misfits: list[str]) -> None:
    for dtype in fits:
        assert _fits(jnp.zeros((2,), dtype), hint), dtype
    for dtype in misfits:
        assert not _fits(jnp.zeros((2,), dtype), hint), dtype


def _fits(value: typing.Any, hint: typing.Any) -> bool:
    with typechecked():
        return ktyping.isinstance(value, hint)


def test_methods_properties_and_partial_calls() -> None:
    class Model:
        width = 3

        @typechecked
        def call(self, x: Float["b {self.width}"], *more: Float["b _"], **named: Float["b"]) -> Float["b"]:
            return x[:, 0]

        @typechecked
        @classmethod
        def build(cls, x: Float["b"]) -> int:
            return len(x)

        @staticmethod
        @typechecked
        def plain(x: Float["b"]) -> int:
            return len(x)

        @typechecked
        @property
        def size(self) -> Float["2"]:
            return np.ones(self.width)

    assert Model().call(_f(2, 3), _f(2, 9), scale=_f(2)).shape == (2,)
    with pytest.raises(TypeCheckError, match=r"axis 1 is 4, but \{self.width\} is 3"):
        Model().call(_f(2, 4))
    with pytest.raises(TypeCheckError, match=r"\*more\[1\]"):
        Model().call(_f(2, 3), _f(2, 9), _f(3, 9))
    with pytest.raises(TypeCheckError, match="scale"):
        Model().call(_f(2, 3), scale=_f(3))
    assert Model.build(_f(4)) == 4
    assert Model.plain(_f(4)) == 4
    with pytest.raises(TypeCheckError, match="the return value"):
        _ = Model().size


def test_a_wrong_call_is_still_pythons_own_error() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        attention(_f(2, 3))


def test_generators_check_each_yielded_value_and_pass_send_and_throw() -> None:
    closed = []

    @typechecked
    def batches(x: Float["n d"]) -> typing.Generator[Float["b d"], int, str]:
        try:
            size = 1
            while size:
                size = yield x[:size]
        finally:
            closed.append(True)
        return "end"

    walk = batches(_f(4, 2))
    assert next(walk).shape == (1, 2)
    assert walk.send(3).shape == (3, 2)  # b may change from one yielded value to the next
    with pytest.raises(StopIteration) as stop:
        walk.send(0)
    assert stop.value.value == "end" and closed
    with pytest.raises(TypeCheckError):
        batches(_f(4))

    @typechecked
    def wrong(x: Float["n d"]) -> typing.Iterator[Float["d"]]:
        yield _f(5)

    with pytest.raises(TypeCheckError, match="a yielded value"):
        next(wrong(_f(4, 2)))


@typechecked
@dataclasses.dataclass
class Cloud:
    """Points with colours."""

    position: Float["n 3"]
    color: UInt8["n 3"]


def test_dataclasses_have_a_scope_of_their_own() -> None:
    def cloud(n: int) -> Cloud:
        return Cloud(_f(n, 3), np.ones((n, 3), np.uint8))

    with pytest.raises(TypeCheckError, match=r"color does not fit .* axis 0 is 16, but n is 17 \(bound by position\)"):
        Cloud(_f(17, 3), np.ones((16, 3), np.uint8))

    @typechecked
    def move(cloud: Cloud, by: Float["n"]) -> int:
        return len(by)

    assert move(cloud(5), _f(3)) == 3  # its n is not the cloud's
    broken = cloud(5)
    broken.color = np.ones((4, 3), np.uint8)
    with pytest.raises(TypeCheckError, match="cloud does not fit"):
        move(broken, _f(3))


class Batch(typing.TypedDict):
    """One batch."""

    image: Float["b h w"]
    label: Int["b"]


def test_typed_dicts_have_a_scope_of_their_own() -> None:
    @typechecked
    def count(batch: Batch, b: Float["b"]) -> int:
        return len(b)

    assert count({"image": _f(2, 4, 4), "label": np.ones(2, int)}, _f(7)) == 7
    with pytest.raises(TypeCheckError, match=r"\['label'\].*axis 0 is 3, but b is 2"):
        count({"image": _f(2, 4, 4), "label": np.ones(3, int)}, _f(7))
    with pytest.raises(TypeCheckError, match="with the keys image, label"):
        count({"image": _f(2, 4, 4)}, _f(7))


def test_only_dataclasses_can_be_checked_as_classes() -> None:
    with pytest.raises(TypeError, match="not a dataclass"):
        typechecked(type("Plain", (), {}))


def test_containers_of_arrays() -> None:
    @typechecked
    def stack(xs: list[Float["n"]], pair: tuple[Float["n"], int], named: dict[str, Float["n"]]) -> int:
        return ktyping.dim["n"]

    assert stack([_f(3), _f(3)], (_f(3), 1), {"a": _f(3)}) == 3
    with pytest.raises(TypeCheckError, match=r"\[1\]: float32\[4\]"):
        stack([_f(3), _f(4)], (_f(3), 1), {})
    with pytest.raises(TypeCheckError, match="not a tuple of 2"):
        stack([_f(3)], (_f(3), 1, 2), {})
    with pytest.raises(TypeCheckError, match="not a list"):
        stack(_f(3), (_f(3), 1), {})


def test_other_annotations_are_checked_too() -> None:
    @typechecked
    def plain(n: int, rate: float, names: list[str] | None = None, mode: typing.Literal["a", "b"] = "a") -> str:
        return mode

    assert plain(1, 2) == "a"
    for wrong in [{"n": "1", "rate": 1.0}, {"n": 1, "rate": "x"}, {"n": 1, "rate": 1, "names": [1]},
                  {"n": 1, "rate": 1, "mode": "c"}]:  # fmt: skip
        with pytest.raises(TypeCheckError):
            plain(**wrong)


def test_trees_and_their_structure() -> None:
    @typechecked
    def add(x: PyTree[Float["*b"], "$S"], y: PyTree[Float["*b"], "$S"]) -> PyTree[Float["*b"], "$S"]:
        return jax.tree.map(np.add, x, y)

    assert set(add({"a": _f(3), "b": _f(3)}, {"a": _f(3), "b": _f(3)})) == {"a", "b"}
    with pytest.raises(TypeCheckError, match="its structure is"):
        add({"a": _f(3)}, [_f(3)])
    with pytest.raises(TypeCheckError, match=re.escape("['a']")):
        add({"a": _f(3)}, {"a": _f(4)})


def test_python_numbers_fit_scalars_only() -> None:
    @typechecked
    def scale(by: ScalarFloat) -> None: ...

    scale(1.0)
    scale(jnp.float32(2))
    scale(np.float64(2))
    with pytest.raises(TypeCheckError):
        scale(1)
    with pytest.raises(TypeCheckError):
        scale(_f(1))
    assert not _fits(1.0, Float[""])


def test_shapes_of_tuples() -> None:
    @typechecked
    def reshape(x: Float["a b"], to: Shape["b a"]) -> Float["b a"]:
        return x.reshape(to)

    assert reshape(_f(2, 3), (3, 2)).shape == (3, 2)
    with pytest.raises(TypeCheckError):
        reshape(_f(2, 3), (2, 3))


def test_under_jit_the_check_happens_while_tracing() -> None:
    traced = []

    @jax.jit
    @typechecked
    def step(x: Float["b n"], y: Float["b"]) -> Float["n"]:
        traced.append(ktyping.dim["n"])
        return y @ x

    step(_f(2, 3), _f(2))
    step(_f(2, 3), _f(2))
    assert traced == [3]
    with pytest.raises(TypeCheckError):
        step(_f(2, 3), _f(3))


def test_symbolic_sizes_pass_unless_they_provably_differ() -> None:
    from jax import export

    @typechecked
    def double(x: Float["b n"], y: Float["b 4"]) -> Float["b n"]:
        return x * 2

    a, b = export.symbolic_shape("a, b")

    def specs(*shapes: tuple) -> list:
        return [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]

    export.export(jax.jit(double))(*specs((a, b), (a, 4)))
    with pytest.raises(TypeCheckError):
        export.export(jax.jit(double))(*specs((a, b), (a + 1, 4)))


def test_postponed_annotations_work() -> None:
    namespace: dict = {"__name__": "postponed"}
    source = """
from __future__ import annotations
from kauldron_core.ktyping import *

@typechecked
def f(x: Float['n']) -> Float['n']:
    return x
"""
    exec(compile(source, "postponed", "exec"), namespace)
    assert namespace["f"](_f(2)).shape == (2,)
    with pytest.raises(TypeCheckError):
        namespace["f"](_f(2, 2))


def test_an_annotation_without_meaning_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="takes the shape as one string"):
        Float[3]
    with pytest.raises(TypeError, match="dimension 'b-'"):
        Float["b-"]
    with pytest.raises(TypeError, match="starts with"):
        PyTree[int, "S"]
    with pytest.raises(TypeError, match="for annotations"):
        Float(3)
