"""Paths: read, print, join; values found by item, then by attribute; a miss that says everything."""

import collections
import dataclasses
from typing import Any, NamedTuple

import flax.struct
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron_core import kontext
from kauldron_core.kontext import Path
from kauldron_core.paths import DOUBLE_STAR, PathSyntaxError

literals = (
    st.text(max_size=8)
    | st.integers()
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.slices(9)
)


@hypothesis.given(st.lists(literals, max_size=6))
def test_a_printed_path_parses_to_the_same_path(parts):
    path = Path(*parts)
    assert Path.from_str(str(path)) == path
    assert hash(Path.from_str(str(path))) == hash(path)


@hypothesis.given(st.lists(literals, max_size=4), st.lists(literals, max_size=4))
def test_join_and_relative_to_are_inverse(left, right):
    start, rest = Path(*left), Path(*right)
    assert (start / rest).relative_to(start) == rest
    assert start.join(rest) == Path(*left, *right) == start / str(rest)
    assert (start / rest).is_relative_to(start)


def test_a_path_is_a_sequence_of_its_parts():
    path = Path.from_str("a[0].b['x.y'][..., :1]")
    assert list(path) == ["a", 0, "b", "x.y", (..., slice(None, 1))]
    assert (len(path), path[1], path[:2], path[-1][0]) == (5, 0, Path("a", 0), ...)
    assert str(path) == "a[0].b['x.y'][...,:1]"
    assert repr(Path()) == ""
    assert Path.from_str("") == Path()


def test_keys_of_different_types_are_different_paths():
    assert len({Path(1), Path(True), Path("1"), Path(1.0)}) == 4
    assert Path("a") != ("a",)


def test_a_path_takes_no_wildcards():
    with pytest.raises(PathSyntaxError):
        Path.from_str("a.*")
    with pytest.raises(PathSyntaxError, match="a Path takes no wildcards"):
        Path("a", DOUBLE_STAR)


def test_relative_to_something_else_is_an_error():
    with pytest.raises(ValueError, match=r"'a\.b' does not start with 'b'"):
        Path("a", "b").relative_to("b")


def test_every_kind_of_jax_key_becomes_a_part():
    keys = (
        jax.tree_util.DictKey("a"),
        jax.tree_util.GetAttrKey("b"),
        jax.tree_util.SequenceKey(2),
        jax.tree_util.FlattenedIndexKey(3),
        jax.tree_util.DictKey(4),
    )
    assert Path.from_jax_path(keys) == Path("a", "b", 2, 3, 4)
    with pytest.raises(TypeError, match="unknown JAX key entry"):
        Path.from_jax_path([object()])


class Point(NamedTuple):
    x: int
    y: Any


@flax.struct.dataclass
class Preds:
    aux: Any
    logits: Any = None

    @property
    def first(self):
        return self.aux[0]


class Plain:
    def __init__(self):
        self.value = {"k": 7}


TREE = {
    "preds": Preds(aux=[Point(1, {"pos": 2})], logits=np.arange(12).reshape(3, 4)),
    "interms": {"enc": {"__call__": [np.float32(5)]}},
    "by_number": {0: "zero", -4: "minus four", "0": "text"},
    "odd": {"x.y": 3, "items": 4},
    "obj": Plain(),
    "none": None,
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("preds.aux[0].x", 1),
        ("preds.aux[-1].y.pos", 2),
        ("preds.aux[0][1].pos", 2),
        ("preds.first.x", 1),
        ("interms.enc.__call__[0]", 5),
        ("by_number[0]", "zero"),
        ("by_number[-4]", "minus four"),
        ("by_number['0']", "text"),
        ("odd['x.y']", 3),
        ("odd.items", 4),
        ("obj.value.k", 7),
        ("none", None),
        ("preds.logits.shape[1]", 4),
        ("preds.logits[1,2]", 6),
        (("preds", "aux", 0, "x"), 1),
        (Path("preds", "aux", 0, "x"), 1),
    ],
)
def test_get_by_path(path, value):
    assert kontext.get_by_path(TREE, path) == value


def test_the_empty_path_is_the_root_and_no_path_is_none():
    assert kontext.get_by_path(TREE, "") is TREE
    assert kontext.get_by_path(TREE, None) is None
    assert kontext.get_by_path(TREE, None, default=3) == 3
    with pytest.raises(TypeError, match="a path is a text"):
        kontext.get_by_path(TREE, 3.5)


@pytest.mark.parametrize("array", [np.arange(24).reshape(2, 3, 4), jnp.arange(24).reshape(2, 3, 4)])
@pytest.mark.parametrize("index", ["[..., 0]", "[0]", "[:, 1:]", "[1, ::2, None]", "[..., :1, -1]", "[-2]"])
def test_arrays_are_sliced(array, index):
    found = kontext.get_by_path({"a": {"x": array}}, f"a.x{index}")
    assert np.array_equal(found, eval(f"x{index}", {"x": np.asarray(array)}))


@pytest.mark.parametrize("index", ["[2]", "[-3]", "[0, 3]", "[..., 4]", "[0, 0, 0, 0]"])
@pytest.mark.parametrize("make", [np.zeros, jnp.zeros])
def test_an_index_out_of_range_is_a_miss_although_jax_would_clamp_it(make, index):
    with pytest.raises(KeyError, match=r"\(2, 3, 4\)"):
        kontext.get_by_path({"x": make((2, 3, 4))}, f"x{index}")


def test_indices_and_slices_work_on_traced_arrays():
    take = jax.jit(lambda tree: kontext.get_by_path(tree, "x[1,:2]"))
    assert np.array_equal(take({"x": jnp.arange(6).reshape(2, 3)}), [3, 4])


def test_the_keys_of_a_dict_count_and_not_the_names_of_layers_or_methods():
    """X02: the keys of a dict count and not the names of layers or methods."""
    context = {"preds": {"logits": 1, "values": 2, "keys": 3}, "interms": {"Dense_0": {"logits": 9}}}
    assert kontext.get_by_path(context, "preds.logits") == 1
    assert kontext.get_by_path(context, "preds.values") == 2
    assert kontext.get_by_path(context, "preds.keys") == 3


@pytest.mark.parametrize("tree", [{"a": {}}, {"a": Preds(1)}, {"a": []}, {"a": collections.OrderedDict()}])
@pytest.mark.parametrize("name", ["items", "replace", "append", "keys", "count"])
def test_a_method_of_a_container_is_never_found_by_name(tree, name):
    with pytest.raises(KeyError):
        kontext.get_by_path(tree, f"a.{name}")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "preds.aux[0].y.pso",
            "preds.aux[0].y.pso: 'preds.aux[0].y' (dict) has no 'pso'. "
            "Did you mean 'preds.aux[0].y.pos'? Available: pos.",
        ),
        ("pred.aux", "pred.aux: the root (dict) has no 'pred'. Did you mean 'preds.aux'? Available: preds, interms,"),
        ("preds.aux[3]", "preds.aux[3]: 'preds.aux' (list) has no '[3]'. Available: [0]."),
        ("none.zz", "none.zz: 'none' (NoneType) has no 'zz'. Available: nothing."),
        ("obj.valu", "'obj' (Plain) has no 'valu'. Did you mean 'obj.value'? Available: value."),
        ("odd.values", "has no 'values'. Available: x.y, items."),
    ],
)
def test_a_miss_names_the_path_the_part_what_was_there_and_the_closest_path(path, message):
    with pytest.raises(KeyError) as caught:
        kontext.get_by_path(TREE, path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_miss_finds_the_same_name_elsewhere():
    with pytest.raises(KeyError, match=r"Did you mean 'preds\.decoder\.head\.classes\.logits'"):
        kontext.get_by_path({"preds": {"decoder": {"head": {"classes": {"logits": 1}}}}}, "preds.logits")


@pytest.mark.parametrize("around", [lambda inner: {"opt_state": inner}, lambda inner: (inner, {"a": inner})])
def test_a_miss_beside_a_named_tuple_without_fields_is_an_ordinary_one(around):
    """F08: the search for a near match said "must be called with a dataclass type or instance"."""
    tree = {"batch": {"label": 1}, "state": around((optax.EmptyState(), optax.ScaleByScheduleState(count=0)))}
    with pytest.raises(
        kontext.PathLookupError, match=r"has no 'label'\. Did you mean 'batch\.label'\? Available: batch"
    ):
        kontext.get_by_path(tree, "label")
    assert kontext.get_by_path({"batch": {"label": 1}, "state": optax.EmptyState()}, "state") == ()


def test_a_default_replaces_a_miss_only():
    assert kontext.get_by_path(TREE, "preds.zzz", default=5) == 5
    assert kontext.get_by_path(TREE, "none", default=5) is None
    assert kontext.get_by_path(TREE, "zzz", default=None) is None


def test_a_text_is_a_leaf():
    with pytest.raises(KeyError):
        kontext.get_by_path({"name": "abc"}, "name[0]")


def test_a_class_is_a_leaf_with_attributes():
    assert kontext.get_by_path({"cls": Plain}, "cls.__name__") == "Plain"
    with pytest.raises(KeyError):
        kontext.get_by_path({"cls": list}, "cls[0]")


def test_a_miss_in_a_huge_tree_is_still_quick():
    tree = {f"layer_{index}": {f"k{inner}": inner for inner in range(100)} for index in range(1000)}
    with pytest.raises(KeyError, match="and 988 more"):
        kontext.get_by_path(tree, "layer_x.k1")


def test_slots_and_unset_fields_are_no_trouble():
    @dataclasses.dataclass(slots=True)
    class Slotted:
        a: int
        b: int = dataclasses.field(init=False)

    assert kontext.get_by_path(Slotted(1), "a") == 1
    with pytest.raises(KeyError, match="Available: a"):
        kontext.get_by_path(Slotted(1), "b")
