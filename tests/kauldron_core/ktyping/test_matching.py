"""Shapes against the mini-language: a table of examples, and every spec against a brute-force matcher."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kauldron_core.ktyping import dims
from kauldron_core.ktyping.matching import Bindings, matches

# spec, shape, sizes already known, every assignment that fits
EXAMPLES = [
    ("b n", (2, 3), {}, [{"b": 2, "n": 3}]),
    ("b n", (2, 3), {"b": 2}, [{"b": 2, "n": 3}]),
    ("b n", (2, 3), {"b": 4}, []),
    ("b b", (2, 2), {}, [{"b": 2}]),
    ("b b", (2, 3), {}, []),
    ("b 3", (2, 3), {}, [{"b": 2}]),
    ("b 3", (2, 4), {}, []),
    ("_ _x b", (2, 4, 5), {}, [{"b": 5}]),
    ("", (), {}, [{}]),
    ("", (1,), {}, []),
    ("*b n", (2, 3, 4), {}, [{"b": (2, 3), "n": 4}]),
    ("*b n", (4,), {}, [{"b": (), "n": 4}]),
    ("+b n", (4,), {}, []),
    ("+b n", (2, 4), {}, [{"b": (2,), "n": 4}]),
    ("*b *c n", (3, 7), {}, [{"b": (), "c": (3,), "n": 7}, {"b": (3,), "c": (), "n": 7}]),
    ("*b *b", (2, 3, 2, 3), {}, [{"b": (2, 3)}]),
    ("*b n", (2, 3), {"b": (5,)}, []),
    ("t? n", (3,), {}, [{"n": 3}]),
    ("t? n", (2, 3), {}, [{"t": 2, "n": 3}]),
    ("t? n", (2, 3), {"t": 4}, []),
    ("... c", (2, 3, 4), {}, [{"c": 4}]),
    ("#c", (1,), {"c": 5}, [{"c": 5}]),
    ("#c", (1,), {}, [{}]),
    ("#c", (5,), {}, [{"c": 5}]),
    ("#c", (4,), {"c": 5}, []),
    ("*#b n", (1, 3, 4), {"b": (2, 3)}, [{"b": (2, 3), "n": 4}]),
    ("*#b n", (2, 3, 4), {"b": (1, 3)}, [{"b": (2, 3), "n": 4}]),
    ("*#b n", (2, 4), {"b": (3,)}, []),
    ("n 3|1", (2, 3), {}, [{"n": 2}]),
    ("n 3|1", (2, 2), {}, []),
    ("3|a", (4,), {}, [{"a": 4}]),
    ("3|a", (4,), {"a": 5}, []),
    ("h*w", (6,), {"h": 2, "w": 3}, [{"h": 2, "w": 3}]),
    ("h*w", (7,), {"h": 2, "w": 3}, []),
    ("h*w h w", (6, 2, 3), {}, [{"h": 2, "w": 3}]),
    ("h*w h w", (7, 2, 3), {}, []),
    ("(c + 1)//2 c", (2, 3), {}, [{"c": 3}]),
]


def _assignments(spec: str, shape: tuple[int, ...], known: dict) -> list[dict]:
    found = matches(dims.parse(spec), shape, Bindings(known), "x")
    unique: list[dict] = []
    for bindings in found:
        if dict(bindings.sizes) not in unique:
            unique.append(dict(bindings.sizes))
    return unique


@pytest.mark.parametrize(("spec", "shape", "known", "expected"), EXAMPLES)
def test_every_assignment_that_fits_is_found(spec: str, shape: tuple, known: dict, expected: list) -> None:
    assert _assignments(spec, shape, known) == expected


@pytest.mark.parametrize(
    "spec", ["b-", "*", "a b)", "3|", "__import__('os')", "{a.__class__}", "f(x)", "b.c[0", "'a'*2; 1"]
)
def test_a_spec_that_says_nothing_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="dimension"):
        dims.parse(spec)


_TOKENS = ["a", "b", "2", "_", "*r", "*s", "+r", "o?", "...", "#a", "3|a"]


def _brute_force(tokens: list[str], shape: tuple[int, ...]) -> set[frozenset]:
    """Tries every way to deal the axes out to the tokens, and keeps those under which all names agree."""
    lengths = [
        range(len(shape) + 1) if t[0] in "*+" or t == "..." else (0, 1) if t.endswith("?") else (1,) for t in tokens
    ]
    found = set()
    for dealt in itertools.product(*lengths):
        if sum(dealt) != len(shape):
            continue
        options: list[list[dict]] = []
        start = 0
        for token, length in zip(tokens, dealt, strict=True):
            options.append(_readings(token, shape[start : start + length]))
            start += length
        for reading in itertools.product(*options):
            names: dict = {}
            if all(names.setdefault(name, size) == size for part in reading for name, size in part.items()):
                found.add(frozenset(names.items()))
    return found


def _readings(token: str, sizes: tuple[int, ...]) -> list[dict]:
    if token in ("...", "_"):
        return [{}]
    if token[0] == "*":
        return [{token[1:]: sizes}]
    if token[0] == "+":
        return [{token[1:]: sizes}] if sizes else []
    if token.endswith("?"):
        return [{token[:-1]: sizes[0]}] if sizes else [{}]
    (size,) = sizes
    if token.isdigit():
        return [{}] if size == int(token) else []
    if token[0] == "#":
        return [{}] if size == 1 else [{token[1:]: size}]
    if "|" in token:
        return [reading for option in token.split("|") for reading in _readings(option, sizes)]
    return [{token: size}]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(_TOKENS), max_size=4), st.lists(st.integers(1, 3), max_size=4).map(tuple))
def test_matching_equals_brute_force(tokens: list[str], shape: tuple[int, ...]) -> None:
    ours = {frozenset(found.items()) for found in _assignments(" ".join(tokens), shape, {})}
    assert ours == _brute_force(tokens, shape)
