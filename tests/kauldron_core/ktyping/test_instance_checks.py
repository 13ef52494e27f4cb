"""`isinstance` with annotations, scopes, config overrides and the older names."""

import jaxtyping
import numpy as np
import pytest

from kauldron_core import ktyping
from kauldron_core import typing as kd_typing
from kauldron_core.ktyping import (
    AmbiguousDimensionError,
    Config,
    Float,
    Int,
    KTypeCheckError,
    NoActiveScopeError,
    PyTree,
    ScalarFloat,
    Shape,
    XFloat,
    check_type,
    dim,
    get_current_scope,
    shape,
    typechecked,
)


def _f(*sizes: int) -> np.ndarray:
    return np.ones(sizes, np.float32)


def test_isinstance_outside_a_checked_function_binds_nothing() -> None:
    assert isinstance(_f(2, 3), Float["b n"]) and isinstance(_f(2, 3), Float)
    assert isinstance(_f(2, 3), (int, Float["b n"])) and isinstance(2.0, ScalarFloat)
    assert isinstance(_f(4, 4), Float["n n"]) and not isinstance(_f(2, 3), Float["n n"])
    assert not isinstance(_f(2, 3), Int["b n"]) and not isinstance(2.0, Float)
    assert isinstance((3, 4), Shape["a b"]) and isinstance({"a": _f(2)}, PyTree[Float["n"]])
    assert ktyping.isinstance(_f(2, 3), (Int["b n"], Float["b n"])) and ktyping.isinstance(None, Float["n"] | None)


def test_isinstance_inside_a_checked_function_knows_its_sizes_and_learns_none() -> None:
    @typechecked
    def ask(x: Float["b n"]) -> list[bool]:
        found = [isinstance(_f(2, 5), Float["b m"]), "m" in dim, isinstance(_f(3, 5), Float["b m"])]
        return [*found, ktyping.isinstance(_f(3, 5), (Int["b m"], Float["c m"]))]

    assert ask(_f(2, 3)) == [True, False, False, True]


def test_a_nested_function_may_ask_where_it_says_so() -> None:
    def nested() -> tuple[int, ...]:
        assert get_current_scope(nested_ok=True) is get_current_scope(stacklevel=1)
        return shape("n b", nested_ok=True)

    @typechecked
    def outer(x: Float["b n"]) -> tuple[int, ...]:
        return nested()

    assert outer(_f(2, 3)) == (3, 2)
    assert check_type(_f(2), Float["n"], nested_ok=True).shape == (2,)
    with pytest.raises(NoActiveScopeError):
        get_current_scope(nested_ok=True)


def test_errors_carry_what_was_known() -> None:
    @typechecked
    def f(a: Float["b n"], b: Float["n"]) -> None: ...

    with pytest.raises(KTypeCheckError) as caught:
        f(_f(2, 3), _f(4))
    scope = caught.value.scope
    assert [dict(one) for one in scope.candidates] == [{"b": 2, "n": 3}]
    assert list(scope.arguments) == ["a"] and scope.annotations == {"a": Float["b n"]}


def test_a_dimension_that_is_not_decided_names_its_candidates() -> None:
    @typechecked
    def ask(x: Float["*b *c n"]) -> tuple[int, ...]:
        return dim["*b"]

    with pytest.raises(AmbiguousDimensionError) as caught:
        ask(_f(2, 3, 4))
    assert caught.value.name == "*b" and set(caught.value.candidates) == {(), (2,), (2, 3)}
    assert isinstance(caught.value, KeyError)


def test_overrides_turn_checking_off_for_modules() -> None:
    @typechecked
    def f(a: Float["b n"]) -> int:
        return 1

    off = ktyping.add_config_override(f.__module__.replace(".", r"\."), Config(typechecking_enabled=False))
    try:
        assert f(_f(2)) == 1
    finally:
        ktyping.remove_config_override(off)
    with pytest.raises(KTypeCheckError):
        f(_f(2))
    with pytest.raises(KeyError, match="there is no config override"):
        ktyping.remove_config_override(off)
    ktyping.remove_config_override(off, missing_ok=True)
    ktyping.add_config_override("", Config(typechecking_enabled=False))
    kd_typing.enable_kd_type_checking()
    with pytest.raises(KTypeCheckError):
        f(_f(2))


def test_annotations_of_jaxtyping_are_checked_by_themselves_or_refused() -> None:
    def f(a: jaxtyping.Float[np.ndarray, "b n"]) -> int:
        return 1

    assert typechecked(f)(_f(2, 3)) == 1
    with pytest.raises(KTypeCheckError):
        typechecked(f)(_f(2))
    for policy, raised in (("warn", pytest.warns(UserWarning)), ("error", pytest.raises(TypeError))):
        override = ktyping.add_config_override(f.__module__, Config(jaxtyping_annotations=policy))
        with raised as caught:
            typechecked(f)(_f(2, 3))
        ktyping.remove_config_override(override)
        assert "annotated by jaxtyping" in str(caught.value if policy == "error" else caught[0].message)


def test_the_older_names() -> None:
    @typechecked
    def ask(x: Float["b n"]) -> tuple:
        kd_typing.set_shape("c d", (7, 8))
        with pytest.raises(KTypeCheckError, match="the shape does not fit"):
            kd_typing.set_shape("b", (9,))
        return kd_typing.Shape("c d b"), kd_typing.Dim("n")

    assert ask(_f(2, 3)) == ((7, 8, 2), 3)
    assert kd_typing.TypeCheckError is KTypeCheckError
    for name in kd_typing.__all__:
        assert hasattr(kd_typing, name)


def test_types_say_whose_arrays_they_take() -> None:
    assert isinstance(_f(2), XFloat["n"]) and not isinstance(_f(2), ktyping.TfFloat["n"])
    assert ktyping.is_array_type(Float["b"]) and not ktyping.is_array_type(np.ndarray)

    @typechecked
    def f(a: ktyping.TfFloat["n"]) -> None: ...

    with pytest.raises(KTypeCheckError, match="it is an array of numpy; TfFloat takes those of tensorflow"):
        f(_f(2))
