"""Configs print as the calls they describe; they are compared, flattened and named by their content."""

import pytest

from kauldron_core import konfig
from kauldron_core.konfig.tree.comparing import MISSING
from tests.kauldron_core.konfig.sample import Color

with konfig.imports():
    import jax.numpy as jnp
    import optax
    from flax import linen as nn

    from tests.kauldron_core.konfig import sample


def test_short_calls_on_one_line_and_long_ones_an_argument_a_line():
    cfg = konfig.ConfigDict(
        {
            "optimizer": optax.adam(1e-3, mu_dtype=jnp.bfloat16),
            "model": nn.Dense(features=30, use_bias=False, kernel_init=nn.initializers.lecun_normal(), name="a" * 20),
            "t": (1,),
            "e": [],
            "color": Color.RED,
            1: ...,
        }
    )
    assert repr(cfg) == str(cfg)
    assert (
        repr(cfg)
        == """<ConfigDict[{
    'optimizer': optax.adam(0.001, mu_dtype=jnp.bfloat16),
    'model': nn.Dense(
        features=30,
        use_bias=False,
        kernel_init=nn.initializers.lecun_normal(),
        name='aaaaaaaaaaaaaaaaaaaa',
    ),
    't': (1,),
    'e': [],
    'color': <Color.RED: 1>,
    1: ...,
}]>"""
    )
    assert repr(optax.adam(0.1)) == "<ConfigDict[optax.adam(0.1)]>"


def test_shared_nodes_are_marked_once():
    shared, other = nn.Dense(3), {"a": 1}
    cfg = konfig.ConfigDict({"x": shared, "y": [shared], "o": other, "p": (other, other)})
    assert "'x': &id001 nn.Dense(3)" in repr(cfg) and "'y': [*id001]" in repr(cfg)
    assert "'o': &id002 {'a': 1}" in repr(cfg) and "'p': (*id002, *id002)" in repr(cfg)
    cfg = konfig.ConfigDict({"a": 1})
    cfg.me = cfg
    assert repr(cfg) == "<ConfigDict[&id001 {'a': 1, 'me': *id001}]>"


def test_references_and_placeholders_show_as_they_were_written():
    cfg = konfig.ConfigDict(
        {"a": 1, "p": konfig.placeholder(int), "r": konfig.required(str), "q": konfig.placeholder(int)}
    )
    cfg.b = cfg.ref.a * 2
    cfg.q = 5
    assert repr(cfg) == (
        "<ConfigDict[{\n    'a': 1,\n    'p': placeholder(int),\n    'r': placeholder(str, required=True),\n"
        "    'q': 5,\n    'b': cfg.ref.a * 2,\n}]>"
    )


def test_html_for_notebooks():
    cfg = konfig.ConfigDict({"model": nn.Dense(3, name="<b>"), "list": [nn.Dense(1), 2], "empty": {}})
    cfg.me = cfg
    html = cfg._repr_html_()
    assert html.count("<details") == html.count("</details>") == 4
    assert "nn.Dense" in html and "&lt;b&gt;" in html and "<b>'" not in html


def test_aliases_can_be_added(monkeypatch):
    from kauldron_core.konfig.calls import targets

    monkeypatch.setattr(targets, "_aliases", dict(targets._aliases))
    konfig.register_aliases({"tests.kauldron_core.konfig.sample": "sample"})
    assert repr(sample.Layer(1)) == "<ConfigDict[sample.Layer(1)]>"


@pytest.fixture
def cfg():
    cfg = konfig.ConfigDict(
        {"steps": 10, "x.y": 1, "model": nn.Dense(3), "layers": [{"size": 1}, {"size": 2}], "empty": {}, "none": []}
    )
    cfg.half = cfg.ref.steps // 2
    return cfg


def test_flatten_gives_every_leaf_by_its_path(cfg):
    assert konfig.flatten(cfg) == {
        "steps": 10,
        "['x.y']": 1,
        "model.__qualname__": "flax.linen:Dense",
        "model[0]": 3,
        "layers[0].size": 1,
        "layers[1].size": 2,
        "empty": konfig.ConfigDict(),
        "none": [],
        "half": 5,
    }


def test_diff_lists_the_leaves_that_differ(cfg):
    import copy

    other = copy.deepcopy(cfg)
    assert konfig.diff(cfg, other) == []
    other.steps = 11
    other.model = nn.Conv(3, kernel_size=(1,))
    other.layers[1].size = 5
    del other["x.y"]
    with other.ignore_type():
        other["none"] = None
    changes = konfig.diff(cfg, other)
    assert [tuple(change) for change in changes] == [
        ("steps", 10, 11),
        ("['x.y']", 1, MISSING),
        ("model.__qualname__", "flax.linen:Dense", "flax.linen:Conv"),
        ("layers[1].size", 2, 5),
        ("none", [], None),
        ("model.kernel_size[0]", MISSING, 1),
    ]
    nan = konfig.ConfigDict({"a": float("nan"), "b": 1, "c": True})
    assert konfig.diff(nan, konfig.ConfigDict({"a": float("nan"), "b": 1.0, "c": 1})) == [
        ("b", 1, 1.0),
        ("c", True, 1),
    ]


def test_a_fingerprint_names_what_is_described(cfg):
    import copy

    other = copy.deepcopy(cfg)
    assert konfig.fingerprint(other) == konfig.fingerprint(cfg)
    reordered = konfig.ConfigDict({key: cfg[key] for key in reversed(list(cfg))})
    assert konfig.fingerprint(reordered) == konfig.fingerprint(cfg)
    assert konfig.fingerprint(konfig.from_json(konfig.to_json(cfg))) == konfig.fingerprint(cfg)
    other.steps = 20
    assert konfig.fingerprint(other) != konfig.fingerprint(cfg)
    # The same on every machine and in every version: it is written into run directories.
    assert konfig.fingerprint(konfig.ConfigDict({"a": 1, "b": [nn.Dense(3)]})) == FINGERPRINT


FINGERPRINT = "9f650b80e0d15dc6a63da2db9ac7d5d5"


def test_a_fingerprint_of_a_part_counts_what_it_refers_to(cfg):
    cfg.model.name = cfg.ref.steps.to_str()
    before = konfig.fingerprint(cfg.model)
    cfg.steps = 11
    assert konfig.fingerprint(cfg.model) != before


def test_types_count_in_a_fingerprint():
    values = [1, 1.0, True, "1", [1], {1}, {"a": 1}, {1: 1}, None, b"1"]
    prints = {konfig.fingerprint(konfig.ConfigDict({"x": value})) for value in values}
    assert len(prints) == len(values)
    # A list and a tuple build the same.
    assert konfig.fingerprint(konfig.ConfigDict({"x": (1,)})) == konfig.fingerprint(konfig.ConfigDict({"x": [1]}))
