"""Annotations refuse what certainly does not fit, and let pass what cannot be decided."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import os
import pathlib
import typing
from typing import Any

import jax
import numpy as np
import pytest

from kauldron_core import konfig
from kauldron_core.konfig.calls import hints
from kauldron_core.konfig.calls.hints import Misfit

with konfig.imports():
    import optax


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Record:
    x: int = 0


class Row(typing.NamedTuple):
    x: int


class Proto(typing.Protocol):
    x: int


class Table(typing.TypedDict):
    x: int


Number = typing.NewType("Number", int)
T = typing.TypeVar("T")
Bound = typing.TypeVar("Bound", bound=int)
CALL = optax.sgd(0.1)


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (1, int, 1),
        (1, float, 1.0),
        (1, complex, 1 + 0j),
        (1, int | float, 1),
        (1.5, int | float, 1.5),
        (1, float | None, 1.0),
        (None, float | None, None),
        (None, None, None),
        (True, bool, True),
        ("a", str, "a"),
        ("a", str | os.PathLike, "a"),
        ("a", pathlib.Path, "a"),
        ("a", typing.Literal["a", 1], "a"),
        (1, typing.Annotated[float, "unit"], 1.0),
        (1, typing.Final[int], 1),
        (1, Number, 1),
        (1, T, 1),
        (1, Bound, 1),
        ("x", "Unknown", "x"),
        ([1, 2], tuple[int, ...], (1, 2)),
        ((1, 2), list[float], [1.0, 2.0]),
        ([1, 2.5], tuple[int, float], (1, 2.5)),
        ([], tuple[()], ()),
        ([1], collections.abc.Sequence[int], [1]),
        ((1,), collections.abc.Sequence[int], (1,)),
        ([1], collections.abc.Iterable, [1]),
        ([1, 1], set[int], {1}),
        ({"a": 1}, dict[str, float], {"a": 1.0}),
        ({"a": 1}, collections.abc.Mapping, {"a": 1}),
        ({"x": 1}, Table, {"x": 1}),
        (1, Proto, 1),
        (Color.RED, Color, Color.RED),
        (0.5, jax.Array, 0.5),
        (0.5, float | jax.Array | collections.abc.Callable[[Any], Any], 0.5),
        (1, np.ndarray | float, 1.0),
        (CALL, float | collections.abc.Callable[[Any], Any], CALL),
        (CALL, int, CALL),
        (CALL, Record | None, CALL),
        (max, collections.abc.Callable[..., Any], max),
        ("anything", Any, "anything"),
        ("anything", object, "anything"),
        ("anything", hints.UNKNOWN, "anything"),
    ],
)
def test_what_fits(value: Any, annotation: Any, expected: Any) -> None:
    found = hints.fit(value, annotation)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1.0, int),
        (True, int),
        (True, float),
        (1, bool),
        (1, str),
        ("1", int),
        (None, int),
        (None, list[int]),
        (10**400, float),
        ("b", typing.Literal["a"]),
        (True, typing.Literal[1]),
        ("a", Color),
        (1, Record),
        ({"x": 1}, Record),
        ((1,), Row),
        ("abc", collections.abc.Sequence[str]),
        ([1, "a"], list[int]),
        ([1], tuple[int, int]),
        ({"a": "x"}, dict[str, int]),
        ([1], dict[str, int]),
        (5, collections.abc.Callable[..., Any]),
        ([1.0], jax.Array),
        ("a", jax.Array | float),
        (True, jax.Array | float),
        (5, str | None),
        (5, pathlib.Path),
    ],
)
def test_what_does_not_fit(value: Any, annotation: Any) -> None:
    with pytest.raises(Misfit):
        hints.fit(value, annotation)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (float | None, "float | None"),
        (typing.Optional[int], "int | None"),  # noqa: UP045
        (tuple[int, ...], "tuple[int, ...]"),
        (dict[str, list[int]], "dict[str, list[int]]"),
        (collections.abc.Callable[[int], int], "Callable"),
        (typing.Literal["a", "b"], "'a' | 'b'"),
        (float | jax.Array, "float | Array"),
        (collections.abc.Mapping[str, Any], "Mapping[str, Any]"),
        (hints.UNKNOWN, "any value"),
    ],
)
def test_annotations_are_described_in_short(annotation: Any, text: str) -> None:
    assert hints.described(annotation) == text


def test_questions_about_annotations() -> None:
    assert hints.is_text(str | None)
    assert hints.is_text(typing.Literal["a", "b"])
    assert not hints.is_text(str | int)
    assert hints.has_text(str | int)
    assert hints.accepts_none(typing.Optional[int])  # noqa: UP045
    assert hints.is_anything(Any | None)
    assert hints.choices(typing.Literal["a"] | None) == ["a"]
    assert hints.element(dict[str, int], "x") is int
    assert hints.element(tuple[int, str], 1) is str
    assert hints.element(tuple[int, str], 5) is hints.UNKNOWN
    assert hints.element(list[int] | None, 0) is int
    assert hints.element(int, 0) is hints.UNKNOWN
