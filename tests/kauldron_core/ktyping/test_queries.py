"""What a checked function asks about its dimensions, and the key annotations."""

import jax
import numpy as np
import pytest

from kauldron_core import ktyping
from kauldron_core.ktyping import (
    ArraySpec,
    DType,
    ElementSpec,
    Float,
    NoActiveScopeError,
    PRNGKey,
    PRNGKeyArray,
    PRNGKeyLike,
    TfFloat,
    TypeCheckError,
    XFloat,
    check_type,
    dim,
    shape,
    typechecked,
)
from kauldron_core.random import PRNGKey as WrappedKey


def _f(*sizes: int) -> np.ndarray:
    return np.ones(sizes, np.float32)


def test_shape_and_dim() -> None:
    @typechecked
    def ask(x: Float["*b n"]) -> tuple:
        return shape("*b 3 n*2"), dim["n"], dim["*b"], "n" in dim, "k" in dim

    assert ask(_f(2, 3, 4)) == ((2, 3, 3, 8), 4, (2, 3), True, False)


def test_what_is_not_decided_or_not_known_is_an_error() -> None:
    @typechecked
    def ask(x: Float["*b *c n"], spec: str) -> tuple:
        return shape(spec)

    with pytest.raises(ValueError, match=r"'\*b' is not decided: it could be \(\) or \(2 3\) or \(2\)"):
        ask(_f(2, 3, 4), "*b")
    with pytest.raises(ValueError, match=r"unknown dimension 'k'. Known here: b, c, n."):
        ask(_f(2, 3, 4), "k")


def test_check_type_learns_and_isinstance_does_not() -> None:
    @typechecked
    def learn(x: Float["n"]) -> tuple:
        knows = ktyping.isinstance(_f(3, 6), Float["n m"]), "m" in dim
        check_type(_f(3, 6), Float["n m"])
        return knows, dim["m"]

    assert learn(_f(3)) == ((True, False), 6)
    with pytest.raises(TypeCheckError):
        learn(_f(4))


def test_a_dimension_can_be_added_but_not_changed() -> None:
    @typechecked
    def add(x: Float["n"]) -> Float["n k"]:
        dim["k"] = 7
        with pytest.raises(ValueError, match="can't be changed"):
            dim["n"] = 9
        return _f(3, 7)

    assert add(_f(3)).shape == (3, 7)


def test_a_function_that_is_not_checked_can_not_ask() -> None:
    def helper() -> int:
        return dim["n"]

    @typechecked
    def outer(x: Float["n"]) -> int:
        return helper()

    for call in (lambda: outer(_f(3)), helper, lambda: shape("n"), lambda: check_type(_f(3), Float["n"])):
        with pytest.raises(NoActiveScopeError):
            call()
    assert ktyping.isinstance([1], list[int])  # no sizes, no scope needed
    assert not ktyping.isinstance([1], list[str])


def test_inner_functions_and_comprehensions_may_ask() -> None:
    @typechecked
    def outer(x: Float["n"]) -> list[int]:
        return [dim["n"] for _ in range(2)] + [(lambda: dim["n"])()]

    assert outer(_f(3)) == [3, 3, 3]


def test_blocks() -> None:
    with typechecked():
        check_type(_f(2, 3), Float["b n"])
        with typechecked():
            check_type(_f(9), Float["n"])
        with typechecked(new_scope=False):
            check_type(_f(3, 5), Float["n m"])
        assert shape("b n m") == (2, 3, 5)
    with pytest.raises(RuntimeError, match="no checked function"), typechecked(new_scope=False):
        pass


def test_keys_of_every_generator_raw_and_typed() -> None:
    """T02: keys of every generator raw and typed."""

    def fits(value: object, hint: object) -> bool:
        with typechecked():
            return ktyping.isinstance(value, hint)

    raw = [jax.random.PRNGKey(0), jax.random.PRNGKey(0, impl="rbg")]
    single = [*raw, jax.random.key(0), jax.random.key(0, impl="rbg"), WrappedKey(0)]
    for key in single:
        assert fits(key, PRNGKey) and fits(key, PRNGKeyLike) and not fits(key, PRNGKeyArray)
    for keys in (jax.random.split(jax.random.key(0)), jax.random.split(jax.random.PRNGKey(0), 3)):
        assert fits(keys, PRNGKeyArray) and not fits(keys, PRNGKey)
    for wrong in (_f(2), np.ones(3, np.uint32), "key", 1.5):
        assert not fits(wrong, PRNGKey) and not fits(wrong, PRNGKeyLike)
    assert fits(3, PRNGKeyLike) and fits([1, 2], PRNGKeyLike) and not fits(3, PRNGKey)
    assert fits(None, PRNGKey | None)


def test_specs_and_dtypes() -> None:
    @typechecked
    def specs(one: ArraySpec, tree: ElementSpec, dtype: DType) -> None: ...

    spec = jax.ShapeDtypeStruct((2,), np.float32)
    for dtype in ("float32", "bfloat16", np.float32, jax.numpy.bfloat16, float, np.dtype("int8")):
        specs(spec, {"a": spec, "b": [spec]}, dtype)
    for wrong in ((_f(2), spec, "float32"), (spec, {"a": _f(2)}, "float32"), (spec, spec, "flat32")):
        with pytest.raises(TypeCheckError):
            specs(*wrong)


@pytest.mark.seqio
def test_tensors_of_tensorflow_fit_when_it_is_loaded() -> None:
    import tensorflow as tf

    @typechecked
    def scores(x: XFloat["b n"], y: TfFloat["b"]) -> int:
        return dim["n"]

    assert scores(tf.ones((2, 3)), tf.ones((2,))) == 3
    with pytest.raises(TypeCheckError, match=r"float32\[4\] \(tensorflow\)"):
        scores(tf.ones((2, 3)), tf.ones((4,)))
    with pytest.raises(TypeCheckError, match="its dtype is int32"):
        scores(tf.ones((2, 3), tf.int32), tf.ones((2,)))

    assert isinstance(tf.ones((2, 3)), TfFloat["b n"]) and not isinstance(tf.ones((2, 3)), Float["b n"])

    # AutoGraph would replace the function by another one, which is not checked.
    specs = [tf.TensorSpec((None, 3)), tf.TensorSpec((None,))]
    checked = tf.function(scores, input_signature=specs, autograph=False)
    assert int(checked(tf.ones((2, 3)), tf.ones((2,)))) == 3  # a size that is not known yet fits
