"""Wildcards: what they find, set and filter, against a matcher that tries everything."""

import copy
import dataclasses

import hypothesis
import hypothesis.strategies as st
import pytest

from kauldron_core import kontext, paths
from kauldron_core.kontext import GlobPath
from kauldron_core.paths import DOUBLE_STAR, STAR


@dataclasses.dataclass(frozen=True)
class Pair:
    left: object
    right: object


names = st.sampled_from(["a", "b", "c"])
leaves = st.integers(0, 3)
trees = st.recursive(
    leaves,
    lambda inner: st.dictionaries(names, inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=12,
)
containers = st.dictionaries(names, trees, max_size=3) | st.lists(trees, max_size=3)
globs = st.lists(st.sampled_from(["a", "b", 0, 1, STAR, DOUBLE_STAR, DOUBLE_STAR]), max_size=4).map(tuple)


def below(node):
    if isinstance(node, dict):
        return list(node.items())
    return list(enumerate(node)) if isinstance(node, list) else []


def nodes(node, path=()):
    yield path, node
    for step, child in below(node):
        yield from nodes(child, (*path, step))


def matches(glob, path):
    """Says whether `glob` matches all of `path`, by trying every split."""
    if not glob:
        return not path
    if glob[0] is DOUBLE_STAR:
        return any(matches(glob[1:], path[skip:]) for skip in range(len(path) + 1))
    return bool(path) and glob[0] in (STAR, path[0]) and matches(glob[1:], path[1:])


def is_strict_miss(tree, glob):
    """Says whether a part that has to be there is missing: one that does not follow a `**`."""
    for index, part in enumerate(glob):
        if part is DOUBLE_STAR or (index and glob[index - 1] is DOUBLE_STAR):
            continue
        for path, node in nodes(tree):
            if matches(glob[:index], path):
                steps = [step for step, _ in below(node)]
                if not isinstance(node, dict | list) or (part is not STAR and part not in steps):
                    return True
    return False


@hypothesis.given(trees, globs)
def test_reading_finds_what_the_matcher_finds(tree, parts):
    glob = GlobPath(*parts)
    if is_strict_miss(tree, parts):
        with pytest.raises(KeyError):
            glob.get_from(tree)
    else:
        wanted = {paths.format(path): node for path, node in nodes(tree) if matches(parts, path)}
        assert glob.get_from(tree) == wanted


def prune(node, path, kept):
    if path in kept:
        return node
    if not any(other[: len(path)] == path for other in kept):
        return None
    items = [(step, prune(child, (*path, step), kept)) for step, child in below(node)]
    items = [(step, child) for (step, child) in items if any(o[: len(path) + 1] == (*path, step) for o in kept)]
    return dict(items) if isinstance(node, dict) else [child for _, child in items]


@hypothesis.given(containers, globs)
def test_filtering_keeps_what_the_matcher_finds(tree, parts):
    hypothesis.assume(not is_strict_miss(tree, parts))
    kept = {path for path, _ in nodes(tree) if matches(parts, path)}
    result = kontext.filter_by_path(tree, GlobPath(*parts))
    assert result == (prune(tree, (), kept) if kept else type(tree)())


@hypothesis.given(containers, globs, st.sampled_from(["a", 0]))
def test_setting_changes_the_reported_places_and_nothing_else(tree, parents, target):
    changed = copy.deepcopy(tree)
    try:
        written = kontext.set_by_path(changed, GlobPath(*parents, target), "new")
    except (KeyError, ValueError):
        assert changed == tree
        return
    assert len(set(written)) == len(written)
    places = {kontext.Path.from_str(path).parts for path in written}
    assert all(kontext.get_by_path(changed, path) == "new" for path in places)
    before, after = dict(nodes(tree)), dict(nodes(changed))
    leaves_before = {path: node for path, node in before.items() if not isinstance(node, dict | list)}
    for path, node in leaves_before.items():
        if not any(path[: len(place)] == place for place in places):
            assert after[path] == node
    assert set(after) - set(before) <= places


@pytest.mark.parametrize(
    ("glob", "tree", "expected", "written"),
    [
        ("a.*[0]", {"a": {"b": [1], "c": [2, 3]}}, {"a": {"b": ["n"], "c": ["n", 3]}}, ["a.b[0]", "a.c[0]"]),
        ("**.b", {"a": {"b": [1], "x": 2}, "b": 0}, {"a": {"b": "n", "x": 2}, "b": "n"}, ["b", "a.b"]),
        ("**.b", {"b": {"b": 1}}, {"b": "n"}, ["b"]),
        ("a.**[0]", {"a": {"b": [1], "c": []}, "d": [1]}, {"a": {"b": ["n"], "c": []}, "d": [1]}, ["a.b[0]"]),
        ("*.new", {"a": {}, "b": {"new": 1}}, {"a": {"new": "n"}, "b": {"new": "n"}}, ["a.new", "b.new"]),
        ("a[-1].b", {"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {"b": "n"}]}, ["a[-1].b"]),
        ("x.y", {"x": {"y": 1}}, {"x": {"y": "n"}}, ["x.y"]),
    ],
)
def test_set_by_path(glob, tree, expected, written):
    assert kontext.set_by_path(tree, glob, "n") == written
    assert tree == expected


@pytest.mark.parametrize(
    ("glob", "tree", "error", "message"),
    [
        ("a.*", {"a": [1]}, ValueError, "a wildcard cannot be the last part"),
        ("**", {"a": [1]}, ValueError, "a wildcard cannot be the last part"),
        ("*.b", {"a": {"b": 1}, "c": 5}, ValueError, "'c' is a leaf"),
        ("a.b", {"a": 5}, ValueError, "'a' is a leaf"),
        ("a[1:]", {"a": [1, 2]}, ValueError, "slices cannot be set"),
        ("", {}, ValueError, "the empty path is the root"),
        ("a.b.c", {"a": {}}, KeyError, "has no 'b'"),
        ("a[2]", {"a": [1, 2]}, KeyError, r"has no '\[2\]'"),
        ("a[0]", {"a": (1, 2)}, TypeError, "a tuple cannot be changed in place"),
    ],
)
def test_set_by_path_refuses(glob, tree, error, message):
    before = copy.deepcopy(tree)
    with pytest.raises(error, match=message):
        kontext.set_by_path(tree, glob, "n")
    assert tree == before


def test_set_by_path_in_an_ml_collections_config():
    import ml_collections

    config = ml_collections.ConfigDict({"a": {"x": {"b": 1}, "y": {"b": 2}}})
    assert kontext.set_by_path(config, "a.*.b", 5) == ["a.x.b", "a.y.b"]
    assert (config.a.x.b, config.a.y.b) == (5, 5)


@pytest.mark.parametrize(
    ("glob", "parent"),
    [("aa.*.bb", "aa"), ("**.bb", ""), ("aa.bb.**.cc", "aa.bb"), ("aa[5].*.bb", "aa[5]"), ("aa[5].bb", "aa[5].bb")],
)
def test_first_non_glob_parent(glob, parent):
    assert GlobPath.from_str(glob).first_non_glob_parent == kontext.Path.from_str(parent)


def test_a_glob_never_equals_a_path_but_prints_alike():
    assert GlobPath("a") != kontext.Path("a")
    assert str(GlobPath.from_str("a.*.**[0]")) == "a.*.**[0]"
    assert kontext.set_by_path({"a": 1}, kontext.Path("a"), 2) == ["a"]


@pytest.mark.parametrize(
    ("glob", "tree", "expected"),
    [
        ("**.c", {"a": {"c": 1, "d": 1}, "c": True, "e": {"d": 1}}, {"a": {"c": 1}, "c": True}),
        ("**.c", [{}, {"a": {"c": 1}, "b": 1}, {"c": 2}], [{"a": {"c": 1}}, {"c": 2}]),
        ("**[0]", [{}, [0, 1, [2, 3]], {}, {"a": [1, 2]}, [[1, 2]]], [{}, [0, [2]], {"a": [1]}, [[1, 2]]]),
        ("**", True, True),
        ("", {"a": [1, 2]}, {"a": [1, 2]}),
        ("a[-1].b", {"a": [{"b": 1}, {"b": 2, "c": 3}], "z": 1}, {"a": [{"b": 2}]}),
        ("a.*.b.**", {"a": [{"b": [1], "c": 1}, {"b": 2}], "b": 1}, {"a": [{"b": [1]}, {"b": 2}]}),
        ("**.b.a", {"b": {"a": 1, "b": {"a": 2, "c": 4}}}, {"b": {"a": 1, "b": {"a": 2}}}),
        ("**.zzz", {"a": {"b": 1}}, {}),
        ("a.*", {"a": (1, 2), "b": 3}, {"a": (1, 2)}),
    ],
)
def test_filter_by_path(glob, tree, expected):
    assert kontext.filter_by_path(tree, glob) == expected


def test_filtering_a_dataclass_keeps_its_fields_as_a_dict():
    tree = {"state": 1, "opt": Pair({"bias": 1, "kernel": 2}, 3)}
    assert kontext.filter_by_path(tree, "opt.left.bias") == {"opt": {"left": {"bias": 1}}}
    assert kontext.filter_by_path(tree, "opt") == {"opt": Pair({"bias": 1, "kernel": 2}, 3)}


@pytest.mark.parametrize(
    ("glob", "tree"),
    [
        ("a.*.b", {"a": [{"b": 1}, {"c": 1}]}),
        ("**.b.c", {"a": {"b": {"c": 1}}, "b": {"d": 1}}),
        ("**.c", 5),
        ("a.*", {"a": 5}),
    ],
)
def test_filtering_is_strict_about_parts_that_do_not_follow_a_double_star(glob, tree):
    with pytest.raises(KeyError):
        kontext.filter_by_path(tree, glob)
