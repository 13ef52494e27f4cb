"""Flattening into paths, building paths as code, and what the room exports and loads."""

import dataclasses
import subprocess
import sys
from typing import Annotated, Any

import flax.struct
import hypothesis
import hypothesis.strategies as st
import pytest

from kauldron_core import kontext

keys = st.text(max_size=4)
trees = st.recursive(
    st.integers(),
    lambda inner: st.dictionaries(keys, inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=10,
)


@hypothesis.given(trees)
def test_each_flat_path_leads_to_its_leaf(tree):
    for path, leaf in kontext.flatten_with_path(tree).items():
        assert kontext.get_by_path(tree, path) == leaf


@flax.struct.dataclass
class Tree:
    foo: Any
    bar: Any


def test_prefix_and_separator():
    tree = Tree(foo={"a": 10, "b": [7]}, bar=9)
    assert kontext.flatten_with_path(tree) == {"foo.a": 10, "foo.b[0]": 7, "bar": 9}
    assert kontext.flatten_with_path(tree, prefix="cfg.x[1]") == {
        "cfg.x[1].foo.a": 10,
        "cfg.x[1].foo.b[0]": 7,
        "cfg.x[1].bar": 9,
    }
    assert kontext.flatten_with_path(tree, separator="/") == {"foo/a": 10, "foo/b/0": 7, "bar": 9}
    assert kontext.flatten_with_path(tree, prefix="cfg", separator="/") == {
        "cfg/foo/a": 10,
        "cfg/foo/b/0": 7,
        "cfg/bar": 9,
    }


def test_a_lone_leaf_and_is_leaf():
    assert kontext.flatten_with_path(3) == {"": 3}
    assert kontext.flatten_with_path(3, prefix="x", separator="/") == {"x": 3}
    assert kontext.flatten_with_path({"a": [1]}, is_leaf=lambda node: isinstance(node, list)) == {"a": [1]}


@dataclasses.dataclass
class Inner:
    pos: int
    again: "Outer"


@dataclasses.dataclass
class Outer:
    inner: Inner | None
    many: list[Inner]
    pair: tuple[int, Inner]
    by_name: dict[str, Inner]
    anything: Any
    noted: Annotated[Inner, "note"]

    @property
    def derived(self):
        return 0


def test_a_builder_prints_as_its_path():
    outer = kontext.path_builder_from("batch", Outer)
    assert str(outer) == "batch"
    assert str(outer.inner.again.inner.pos) == "batch.inner.again.inner.pos"
    assert str(outer.many[0].pos) == "batch.many[0].pos"
    assert str(outer.pair[1].pos) == "batch.pair[1].pos"
    assert str(outer.by_name["x.y"].again) == "batch.by_name['x.y'].again"
    assert str(outer.anything.goes[1]["here"]) == "batch.anything.goes[1].here"
    assert str(outer.noted.pos) == "batch.noted.pos"
    assert str(outer.derived) == "batch.derived"
    assert outer.inner.__as_konfig__() == "batch.inner"


def test_a_builder_refuses_what_the_type_does_not_have():
    outer = kontext.path_builder_from("batch", Outer)
    with pytest.raises(AttributeError, match=r"batch\.inner: unknown attribute 'po'\. Did you mean 'pos'\?"):
        outer.inner.po  # noqa: B018
    with pytest.raises(AttributeError, match="Available: derived, inner"):
        outer.zzz  # noqa: B018
    with pytest.raises(AttributeError):
        outer.inner.pos.real  # noqa: B018
    with pytest.raises(TypeError, match=r"batch\.inner\.pos: a int has no items"):
        outer.inner.pos[0]
    assert {"inner", "many", "derived"} <= set(dir(outer))


def test_every_public_name_exists():
    for name in kontext.__all__:
        assert getattr(kontext, name) is not None


@pytest.mark.process
def test_kontext_alone_loads_neither_flax_nor_optax():
    code = "import sys; from kauldron_core import kontext; print({'flax', 'optax', 'orbax'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "set()"
