"""A config reads and writes like an object, keeps its types, and refuses what does not belong in it."""

import copy
import pathlib
import pickle

import ml_collections
import numpy as np
import pytest

from kauldron_core import konfig
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.tree.building import ResolvedObjectError
from tests.kauldron_core.konfig.sample import Color, Described, Layer, Point, Size

with konfig.imports():
    from tests.kauldron_core.konfig import sample


@pytest.fixture
def cfg():
    return konfig.ConfigDict({"steps": 100, "model": {"width": 8, "layers": [{"size": 1}, {"size": 2}]}})


def test_fields_are_read_as_attributes_and_entries(cfg):
    assert cfg.model.width == cfg["model"]["width"] == 8
    assert cfg.model.layers[1].size == 2
    assert cfg.get("missing") is None and cfg.get("steps") == 100
    assert "steps" in cfg and "missing" not in cfg
    assert list(cfg) == ["steps", "model"] and len(cfg) == 2
    assert dict(**cfg.model)["width"] == 8
    assert "steps" in dir(cfg)


def test_a_missing_field_gives_the_closest_one(cfg):
    with pytest.raises(AttributeError, match=r"unknown field 'step'\. Did you mean 'steps'"):
        _ = cfg.step
    with pytest.raises(KeyError, match="Available: steps, model"):
        cfg["nothing"]
    assert not hasattr(cfg, "__array__") and not hasattr(cfg, "_repr_png_")


def test_dots_in_a_key_are_part_of_it():
    cfg = konfig.ConfigDict({"a.b.c": 1, "a": {"b": 2}})
    assert cfg["a.b.c"] == 1 and cfg.a.b == 2
    cfg["a.b"] = 3
    assert cfg.a == konfig.ConfigDict({"b": 2}) and cfg["a.b"] == 3


def test_a_plain_dict_tells_its_keys_apart():
    cfg = konfig.ConfigDict({0: "a", "0": "b", -4: "c", None: "d", 1.5: "e", True: "f", Color.RED: "g"})
    assert [cfg[key] for key in (0, "0", -4, None, 1.5, True, Color.RED)] == list("abcdefg")
    cfg[7] = 1
    assert cfg[7] == 1 and "7" not in cfg


def test_arguments_by_position():
    cfg = sample.Anything(3, "x", y=1)
    assert cfg[0] == cfg["0"] == 3 and cfg[-1] == cfg[1] == "x"
    cfg[-1] = "z"
    cfg[2] = "appended"
    assert konfig.resolve(cfg).args == (3, "z", "appended")
    with pytest.raises(IndexError, match="3 positional arguments, not 5"):
        cfg[5] = 1
    with pytest.raises(IndexError):
        _ = cfg[-4]
    del cfg[2]
    assert 2 not in cfg and 1 in cfg


def test_deleting():
    cfg = konfig.ConfigDict({"a": 1, "b": 2})
    del cfg.a
    del cfg["b"]
    assert not cfg
    with pytest.raises(AttributeError):
        del cfg.a
    with pytest.raises(KeyError):
        del cfg["a"]
    assert cfg.pop("a", 5) == 5 and cfg.setdefault("a", 6) == 6 and cfg.pop("a") == 6


@pytest.mark.parametrize(
    ("old", "new", "stored"),
    [
        (1.5, 2, 2.0),
        ([1], (2, 3), [2, 3]),
        ((1,), [2, 3], (2, 3)),
        ("a", pathlib.Path("b"), "b"),
        (pathlib.Path("a"), "b", pathlib.Path("b")),
        (1.5, np.float64(2), np.float64(2)),
        (None, "anything", "anything"),
        ("a", None, None),
        ({"a": 1}, {"b": 2}, {"b": 2}),
    ],
)
def test_types_that_fit(old, new, stored):
    cfg = konfig.ConfigDict({"x": old})
    cfg.x = new
    assert (cfg.x.to_dict() if isinstance(stored, dict) else cfg.x) == stored
    assert isinstance(stored, dict) or type(cfg.x) is type(stored)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (1, 1.5),
        (1, True),
        (True, 1),
        (1.5, False),
        (1, "1"),
        ("a", 1),
        ([1], "abc"),
        ([1], 1),
        ({"a": 1}, 3),
        (3, {"a": 1}),
        (Color.RED, "RED"),
        (b"a", "a"),
    ],
)
def test_types_that_do_not_fit(old, new):
    cfg = konfig.ConfigDict({"x": old})
    with pytest.raises(TypeError, match=r"cfg\.x: .* does not fit") as caught:
        cfg.x = new
    assert isinstance(caught.value, ConfigError)
    with cfg.ignore_type():
        cfg.x = new
    assert cfg.x == (konfig.ConfigDict(new) if isinstance(new, dict) else new)


def test_a_call_may_stand_for_a_number_and_the_other_way_round():
    cfg = sample.Layer(3, scale=0.5)
    cfg.scale = sample.double(1)
    cfg.scale = 0.25
    assert konfig.resolve(cfg) == Layer(3, 0.25)


def test_types_are_kept_below_references_and_placeholders():
    cfg = konfig.ConfigDict({"a": 1, "p": konfig.placeholder(int)})
    cfg.b = cfg.ref.a
    for name in ("b", "p"):
        with pytest.raises(TypeError):
            cfg[name] = "text"
    cfg.p = 3
    with pytest.raises(TypeError):
        cfg.p = "text"
    cfg.p = None
    with pytest.raises(TypeError):
        cfg.p = "text"


@pytest.mark.parametrize("value", [Layer(1), Point(1), object(), np.ones(3), [1, Layer(2)], {"deep": (Layer(1),)}])
def test_a_resolved_object_is_refused_with_ways_out(value):
    cfg = konfig.ConfigDict({"outer": {}})
    with pytest.raises(ResolvedObjectError, match=r"konfig.imports.*konfig.export"):
        cfg.outer.x = value
    assert "x" not in cfg.outer


def test_a_search_space_is_no_value():
    """K18: a search space is no value."""

    class LogUniform:
        def sample(self):
            return 1.0

    with pytest.raises(ConfigError, match="LogUniform"):
        konfig.ConfigDict({"learning_rate": LogUniform()})


def test_an_object_that_knows_its_config_gives_it():
    assert konfig.resolve(konfig.ConfigDict({"x": Described()})).x == Layer(7)


def test_values_that_are_data_are_kept():
    values = {
        "enum": Color.RED,
        "int enum": Size.SMALL,
        "path": pathlib.Path("a/b"),
        "numpy": np.float32(1.5),
        "dtype": np.dtype("int8"),
        "set": {1, 2},
        "text": np.str_("text"),
    }
    cfg = konfig.ConfigDict(values)
    assert all(cfg[key] == value for key, value in values.items())
    assert type(cfg.text) is str


def test_locks():
    cfg = konfig.ConfigDict({"a": {"b": 1}, "l": [{"c": 1}]}).lock()
    cfg.a.b = 2
    for node in (cfg, cfg.a, cfg.l[0]):
        with pytest.raises(AttributeError, match="locked"):
            node.new = 1
    with pytest.raises(KeyError, match="locked"):
        del cfg["a"]
    with cfg.unlocked():
        cfg.a.new = 1
    assert cfg.is_locked and cfg.a.is_locked


def test_freezing_keeps_empty_tuples_and_lists_apart():
    """K02: freezing keeps empty tuples and lists apart."""
    for fields in ({"a": (), "b": []}, {"b": [], "a": ()}):
        frozen = konfig.freeze(konfig.ConfigDict({"inner": fields}))
        assert type(frozen.inner.a) is tuple and type(frozen.inner.b) is list
        assert konfig.resolve(fields) == {"a": (), "b": ()}
        assert konfig.resolve(fields, freeze=False) == {"a": (), "b": []}


def test_a_frozen_config_refuses_changes_and_its_source_does_not(cfg):
    frozen = konfig.freeze(cfg)
    for change in (
        lambda: setattr(frozen, "steps", 1),
        lambda: frozen.model.__setitem__("width", 1),
        lambda: frozen.update(steps=1),
        lambda: frozen.__delitem__("steps"),
    ):
        with pytest.raises(ConfigError, match="frozen"):
            change()
    cfg.steps = 1
    assert frozen.steps == 100


def test_merging():
    left = konfig.ConfigDict({"a": {"x": 1, "y": 2}, "call": sample.Layer(1, scale=2.0), "keep": 1})
    right = {"a": {"y": 3, "z": 4}, "call": sample.Layer(5)}
    merged = left | right
    assert merged.a.to_dict() == {"x": 1, "y": 3, "z": 4}
    assert konfig.resolve(merged.call) == Layer(5, 2.0)
    assert left.a.to_dict() == {"x": 1, "y": 2}
    assert ({"b": 1} | left).keys() == ["b", "a", "call", "keep"]
    left |= {"keep": 2}
    left.update(konfig.ConfigDict({"a": {"x": 9}}), new=1)
    assert (left.keep, left.a.x, left.new) == (2, 9, 1)


def test_merging_a_call_of_another_target_replaces_it():
    cfg = konfig.ConfigDict({"x": sample.Layer(1, scale=2.0)})
    cfg.update({"x": sample.Anything(q=1)})
    assert konfig.resolve(cfg).x.kwargs == {"q": 1}


def test_merged_references_lead_into_the_merge():
    source = konfig.ConfigDict({"steps": 10})
    source.decay = source.ref.steps * 2
    merged = konfig.ConfigDict({"steps": 50}) | source
    assert merged.decay == 20
    merged.steps = 7
    assert merged.decay == 14 and source.decay == 20


def test_shared_nodes_stay_shared(cfg):
    cfg.again = cfg.model
    for other in (copy.deepcopy(cfg), pickle.loads(pickle.dumps(cfg)), konfig.from_json(konfig.to_json(cfg))):
        assert other.again is other.model and other.model is not cfg.model


def test_a_copy_is_shallow_and_a_deepcopy_is_not(cfg):
    assert copy.copy(cfg).model is cfg.model and konfig.ConfigDict(cfg).model is cfg.model
    assert copy.deepcopy(cfg).model is not cfg.model
    assert copy.deepcopy(cfg).model.layers is not cfg.model.layers


def test_equality(cfg):
    other = copy.deepcopy(cfg)
    assert other == cfg
    other.model.layers[1].size = 3
    assert other != cfg and cfg != {"steps": 100}
    assert konfig.ConfigDict({"a": (1,)}) != konfig.ConfigDict({"a": [1]})
    cyclic = konfig.ConfigDict({"a": 1})
    cyclic.me = cyclic
    assert cyclic == copy.deepcopy(cyclic)


def test_what_ml_collections_offers_still_works(cfg):
    assert isinstance(cfg, ml_collections.ConfigDict)
    assert cfg.to_dict() == {"steps": 100, "model": {"width": 8, "layers": [{"size": 1}, {"size": 2}]}}
    assert dict(cfg.items())["steps"] == 100 and 100 in cfg.values()
    cfg.q = ml_collections.config_dict.placeholder(int)
    assert cfg.q is None
    cfg.q = 3
    with pytest.raises(TypeError):
        cfg.q = "a"
    plain = ml_collections.ConfigDict({"a": {"b": 1}})
    assert konfig.ConfigDict(plain).a.b == 1
    assert isinstance(konfig.ConfigDict(plain).a, konfig.ConfigDict)
    assert cfg.get_type("steps") is int
    field = ml_collections.FieldReference(3)
    with pytest.raises(ConfigError, match=r"cfg\.ref"):
        cfg.r = field + 1
    with pytest.raises(ConfigError, match="YAML"):
        cfg.to_yaml()


def test_names_of_attributes_that_are_taken():
    cfg = konfig.ConfigDict()
    with pytest.raises(ConfigError, match="cannot be an attribute"):
        cfg.ref = 1
    with pytest.raises(ConfigError, match="cannot be an attribute"):
        cfg._fields = {}
    cfg["ref"] = 1
    assert cfg["ref"] == 1


def test_a_config_is_made_from_a_dict_only():
    for wrong in ([1], 3, "text"):
        with pytest.raises(ConfigError, match="made from a dict"):
            konfig.ConfigDict(wrong)


def test_a_set_holds_plain_values():
    with pytest.raises(ConfigError, match="plain values"):
        konfig.ConfigDict({"s": {Layer}})


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"__qualname__": "a:b", "__const__": "a:b"}, "either a call or a constant"),
        ({"__qualname__": 3}, "not a name"),
        ({"__const__": ""}, "not a name"),
        ({"__const__": "a:b", "x": 1}, "cannot have arguments"),
    ],
)
def test_nodes_that_are_none(node, message):
    with pytest.raises(ConfigError, match=message):
        konfig.ConfigDict({"x": node})


def test_a_constant_takes_no_fields():
    cfg = konfig.ConfigDict({"x": sample.load})
    with pytest.raises(ConfigError, match="is a constant"):
        cfg.x.y = 1


def test_a_shared_dict_becomes_a_shared_node_and_a_circle_stays_one():
    inner = {"a": 1}
    outer = {"x": inner, "y": [inner]}
    outer["me"] = outer
    cfg = konfig.ConfigDict(outer)
    assert cfg.x is cfg.y[0] and cfg.me is cfg
    assert copy.deepcopy(cfg).me.me.x.a == 1
    with pytest.raises(ConfigError, match="contains itself"):
        konfig.resolve(cfg)
