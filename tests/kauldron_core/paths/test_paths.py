"""Paths print and parse as inverses, and a wrong text names the character that is wrong."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron_core import paths
from kauldron_core.errors import ConfigError

KEYS = st.one_of(
    st.text(max_size=8),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.binary(max_size=4),
    st.none(),
    st.booleans(),
)
BOUNDS = st.none() | st.integers(-9, 9)
INDICES = st.one_of(st.integers(), st.none(), st.just(...), st.builds(slice, BOUNDS, BOUNDS, BOUNDS))
PARTS = st.one_of(KEYS, INDICES, st.lists(INDICES, max_size=4).map(tuple))


@given(st.lists(PARTS, max_size=5).map(tuple))
def test_what_is_printed_parses_to_the_same_parts(parts):
    assert paths.parse(paths.format(parts)) == parts


@given(st.lists(st.sampled_from([paths.STAR, paths.DOUBLE_STAR, "a", "x.y", 0, -1]), max_size=5).map(tuple))
def test_globs_print_and_parse_as_inverses(parts):
    assert paths.parse(paths.format(parts), glob=True) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        ("a.b", ("a", "b")),
        ("a.123.b", ("a", 123, "b")),
        (" a . b [ 0 ] . c ", ("a", "b", 0, "c")),
        ("[0].a", (0, "a")),
        ("evals['a.b'].ds", ("evals", "a.b", "ds")),
        ('x["]"]', ("x", "]")),
        ("x['it\\'s']", ("x", "it's")),
        ("x[...,:,:1,7:9,::-1,None]", ("x", (..., slice(None), slice(1), slice(7, 9), slice(None, None, -1), None))),
        ("None.True", ("None", "True")),
        ("naïve", ("naïve",)),
    ],
)
def test_parse(text, parts):
    assert paths.parse(text) == parts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a..b", "a name is missing before the dot (character 3)"),
        ("a.", "a name is missing after the dot (character 3)"),
        (".a", "a name is missing before the dot (character 1)"),
        ("a.[0]", "a name is missing after the dot (character 3)"),
        ("a[1", "the bracket is never closed (character 2)"),
        ("a['b]", "the quote is never closed (character 2)"),
        ("a[b]", "write ['b'] (character 2)"),
        ("a[f()]", "does not hold a number, a quoted key or a slice"),
        ("a[[1]]", "does not hold a number, a quoted key or a slice"),
        ("a[0] b", "'b' is not expected here (character 6)"),
        ("a.*", "a wildcard is not allowed in this path (character 3)"),
        ("a-b", "'-' is not expected here (character 2)"),
        ("-1", "'-' cannot start a name"),
        ("[" * 900 + "]" * 900, "does not hold"),
        ("a." * 1500, "too long"),
    ],
)
def test_a_text_that_is_no_path_says_where(text, message):
    with pytest.raises(paths.PathSyntaxError, match=re.escape(message)) as caught:
        paths.parse(text)
    assert isinstance(caught.value, ConfigError)
    assert "\n" not in str(caught.value)


def test_join():
    assert paths.join("", "a", 0) == "a[0]"
    assert paths.join("cfg.model", "layers", 0, "x.y") == "cfg.model.layers[0]['x.y']"
