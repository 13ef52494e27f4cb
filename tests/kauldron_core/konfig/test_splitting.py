"""Override text is cut only outside of brackets and quotes."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import pytest

from kauldron_core.konfig.overrides.splitting import (
    depth_of,
    inside,
    is_unfinished,
    partition_key,
    partition_outside,
    split_items,
    split_outside,
)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("1, 2", ["1", "2"]),
        ("1, 2,", ["1", "2"]),
        ("1,,2", ["1", "", "2"]),
        ("[1, 2], (3, 4), {5: 6, 7: 8}", ["[1, 2]", "(3, 4)", "{5: 6, 7: 8}"]),
        ("'a, b', \"c, d\"", ["'a, b'", '"c, d"']),
        ("f(a, b='x, y'), g", ["f(a, b='x, y')", "g"]),
        ("it's, that's", ["it's", "that's"]),
        (r"'it\'s, ok', 2", [r"'it\'s, ok'", "2"]),
        ("r'a,b', b\"c,d\"", ["r'a,b'", 'b"c,d"']),
        ("a]b, c", ["a]b", "c"]),
    ],
)
def test_split_items(text: str, items: list[str]) -> None:
    assert split_items(text) == items


def test_partition() -> None:
    assert partition_outside("a['x=y'].b=c=d", "=") == ("a['x=y'].b", "=", "c=d")
    assert partition_outside("f(x=1)", "=") == ("f(x=1)", "", "")
    assert partition_key("a[=1") == ("a[", "=", "1")
    assert partition_key("a") == ("a", "", "")


@pytest.mark.parametrize("text", ["[1,", "(", "{'a': 1", "'my", '"', "[']'", "'a\\'", "'a\\"])
def test_unfinished(text: str) -> None:
    assert is_unfinished(text)


@pytest.mark.parametrize("text", ["", "[1]", "it's", "'my run'", "a]", "5'", "f('x')"])
def test_finished(text: str) -> None:
    assert not is_unfinished(text)


def test_inside_one_pair_of_brackets() -> None:
    assert inside(" [ 1, 2 ] ", "[") == "1, 2"
    assert inside("[]", "[") == ""
    assert inside("[1], [2]", "[") is None
    assert inside("[']', [1]]", "[") == "']', [1]"
    assert inside("(1)", "[") is None
    assert inside("[", "[") is None


def test_depth() -> None:
    assert depth_of("[(1), {2: [3]}]") == 3
    assert depth_of("'[[['") == 0


@hypothesis.settings(deadline=None)
@hypothesis.given(st.text(alphabet="ab,'\"[](){}\\ =", max_size=30))
def test_pieces_joined_give_the_text_back(text: str) -> None:
    pieces = split_outside(text, ",")
    assert ",".join(pieces).replace(" ", "") == text.replace(" ", "")
    assert "".join(partition_outside(text, "=")) == text
    assert isinstance(is_unfinished(text), bool)
