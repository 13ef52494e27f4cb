"""Resolving builds what a config describes, each shared node once, and says where a failure comes from."""

import copy
import functools
import json

import jax
import jax.numpy as jnp
import pytest

from kauldron_core import konfig
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.resolving.immutable import ImmutableDict
from kauldron_core.konfig.tree import nodes
from kauldron_core.konfig.writing import defaults
from tests.kauldron_core.konfig.sample import CALLS, Hooked, Layer, load

with konfig.imports():
    from tests.kauldron_core.konfig import sample


def test_calls_constants_lists_and_dicts():
    cfg = konfig.ConfigDict(
        {
            "layer": sample.Layer(1, scale=2.0, inner=[sample.Layer(2), {"a": sample.load}]),
            "nested": sample.Layer.Nested(x=3),
            "method": sample.Layer.doubled(4),
            "tuple": (1, [2, (3,)]),
        }
    )
    built = konfig.resolve(cfg)
    assert built.layer == Layer(1, 2.0, (Layer(2), {"a": load}))
    assert built.nested.x == 3 and built.method == Layer(8)
    assert built.tuple == (1, (2, (3,)))
    thawed = konfig.resolve(cfg, freeze=False)
    assert thawed["tuple"] == (1, [2, (3,)]) and type(thawed) is dict


def test_plain_dicts_lists_and_leaves_are_accepted():
    name = f"{Layer.__module__}:Layer"
    assert konfig.resolve({"__qualname__": name, "0": 1}) == Layer(1)
    assert konfig.resolve({"__qualname__": name, 0: 1}) == Layer(1)
    assert konfig.resolve([{"__qualname__": name, "size": 1}]) == (Layer(1),)
    assert konfig.resolve({"__qualname__": name.replace(":", "."), "size": 1}) == Layer(1)
    assert konfig.resolve(3) == 3
    assert konfig.resolve(sample.load) is load


def test_a_frozen_dict_cannot_change_and_has_attributes():
    built = konfig.resolve({"a": {"b": [1, {"c": 2}]}})
    assert built.a.b[1].c == 2 and hash(built) == hash(konfig.resolve({"a": {"b": [1, {"c": 2}]}}))
    for change in (
        lambda: built.__setitem__("a", 1),
        lambda: setattr(built, "a", 1),
        lambda: built.update(a=1),
        lambda: built.pop("a"),
        lambda: built.__ior__({"a": 1}),
        lambda: built.__delitem__("a"),
    ):
        with pytest.raises(TypeError, match="cannot change"):
            change()
    assert built | {"x": 1} == {"a": built.a, "x": 1}
    assert copy.deepcopy(built) == built and isinstance(copy.deepcopy(built), ImmutableDict)
    with pytest.raises(AttributeError):
        _ = built.missing


def test_jax_sees_the_entries_of_a_frozen_dict():
    built = konfig.resolve({"b": 1.0, "a": {1: 2.0}})
    assert jax.tree.leaves(built) == [2.0, 1.0]
    doubled = jax.tree.map(lambda leaf: leaf * 2, built)
    assert isinstance(doubled, ImmutableDict) and doubled.a[1] == 4.0
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(built)]
    assert names == ["['a'][1]", "['b']"]


def test_a_shared_node_is_built_once():
    shared = sample.Anything()
    built = konfig.resolve(konfig.ConfigDict({"a": shared, "b": [shared], "c": sample.Anything(shared)}))
    assert built.a is built.b[0] is built.c.args[0]


def test_hooks():
    cfg = sample.Hooked(raw=sample.Layer(1), other=sample.Layer(2))
    built = konfig.resolve(cfg)
    assert built.cfg is cfg and built.other == Layer(2)
    assert built.raw is cfg.raw and isinstance(built.raw, konfig.ConfigDict)


def test_a_reference_in_an_excluded_field_is_read():
    cfg = konfig.ConfigDict({"n": 3, "x": sample.Hooked(raw=None)})
    cfg.x.raw = cfg.ref.n
    assert konfig.resolve(cfg).x.raw == 3


def test_nothing_is_called_when_anything_is_wrong():
    CALLS.clear()
    for wrong in (
        sample_call("Layer"),  # Lacks an argument.
        sample_call("Layer", size=1, sise=2),
        sample_call("Missing"),
        {"__qualname__": "no_such_module_anywhere:x"},
        {"__const__": f"{Layer.__module__}:nothing"},
    ):
        with pytest.raises(ConfigError, match=r"cfg\.b"):
            konfig.resolve({"a": sample_call("record", name="first"), "b": wrong})
    assert CALLS == []


def sample_call(target, **arguments):
    return {"__qualname__": f"{Layer.__module__}:{target}", **arguments}


def test_an_error_keeps_its_type_and_names_path_call_and_line():
    cfg = konfig.ConfigDict({"model": {"layers": [1, sample.fail()]}})
    with pytest.raises(ZeroDivisionError, match="this target always fails") as caught:
        konfig.resolve(cfg)
    (note,) = caught.value.__notes__
    assert note.startswith(
        "while building cfg.model.layers[1]: tests.kauldron_core.konfig.sample.fail(...), written at "
    )
    assert note.split("written at ")[1].startswith(__file__ + ":")


def test_the_innermost_call_is_named_only():
    with pytest.raises(ZeroDivisionError) as caught:
        konfig.resolve(konfig.ConfigDict({"a": sample.Layer(1, inner=sample.Anything(sample.fail()))}))
    assert len(caught.value.__notes__) == 1 and "cfg.a.inner[0]" in caught.value.__notes__[0]


def test_where_a_loaded_node_was_written_is_its_file(tmp_path):
    konfig.save(konfig.ConfigDict({"x": sample.fail()}), tmp_path / "c.json")
    with pytest.raises(ZeroDivisionError) as caught:
        konfig.resolve(konfig.load(tmp_path / "c.json"))
    assert caught.value.__notes__[0].endswith(f"written at {tmp_path / 'c.json'}")


def test_a_failing_reference_function_names_its_field():
    cfg = konfig.ConfigDict({"a": 1, "deep": [{}]})
    cfg.deep[0].x = konfig.ref_fn(lambda value: 1 / (value - 1), cfg.ref.a)
    with pytest.raises(ZeroDivisionError) as caught:
        konfig.resolve(cfg)
    assert "while computing cfg.deep[0].x" in caught.value.__notes__


def test_what_a_reference_function_returns_is_built_too():
    cfg = konfig.ConfigDict({"size": 2})
    cfg.layer = konfig.ref_fn(lambda size: sample.Layer(size), cfg.ref.size)
    cfg.dicts = konfig.ref_fn(lambda size: [{"x": sample.Layer(size)}], cfg.ref.size)
    built = konfig.resolve(cfg)
    assert built.layer == Layer(2) and built.dicts == ({"x": Layer(2)},)


def test_lists_that_changed_behind_the_configs_back_are_built():
    cfg = konfig.ConfigDict({"items": [1]})
    cfg["items"].append(sample.Layer(1))
    cfg["items"].append({"x": sample.Layer(2)})
    cfg["items"].append(sample.load)
    assert konfig.resolve(cfg)["items"] == (1, Layer(1), {"x": Layer(2)}, load)


def test_a_call_of_what_cannot_be_called():
    with pytest.raises(ConfigError, match=r"cfg\.x: .*CALLS cannot be called"):
        konfig.resolve({"x": sample_call("CALLS")})


class TestOverlay:
    """Leaves can be replaced while building, also by what a config may not hold."""

    @pytest.fixture
    def cfg(self):
        cfg = konfig.ConfigDict(
            {
                "rate": 0.1,
                "steps": 10,
                "optimizer": sample.Anything(0.5, betas=(0.9, 0.99)),
                "layers": [sample.Layer(1), sample.Layer(2)],
            }
        )
        cfg.optimizer.rate = cfg.ref.rate
        cfg.warmup = cfg.ref.steps // 2
        cfg.again = cfg.ref.layers[0]
        return cfg

    def test_a_leaf_is_replaced_and_references_follow(self, cfg):
        before = konfig.to_json(cfg)
        value = object()
        built = konfig.resolve(cfg, overlay={"rate": value, "steps": 50, "layers[1][0]": 7, "optimizer[0]": 3})
        assert built.rate is built.optimizer.kwargs["rate"] is value
        assert built.warmup == 25
        assert built.layers == (Layer(1), Layer(7))
        assert built.optimizer.args == (3,)
        assert konfig.to_json(cfg) == before and konfig.resolve(cfg).warmup == 5

    def test_an_entry_of_a_tuple_is_replaced(self, cfg):
        built = konfig.resolve(cfg, overlay={"optimizer.betas[1]": 0.5, "optimizer.betas[-2]": 0.1})
        assert built.optimizer.kwargs["betas"] == (0.1, 0.5)

    def test_a_shared_node_is_replaced_in_both_places(self, cfg):
        built = konfig.resolve(cfg, overlay={"layers[0][0]": 9})
        assert built.again is built.layers[0] and built.again.size == 9

    def test_a_whole_node_and_an_argument_with_a_default(self, cfg):
        built = konfig.resolve(cfg, overlay={"optimizer": None, "layers[0].scale": 3.0})
        assert built.optimizer is None and built.layers[0].scale == 3.0

    def test_a_field_that_held_a_reference_only_changes_itself(self, cfg):
        built = konfig.resolve(cfg, overlay={"optimizer.rate": 7.0})
        assert built.optimizer.kwargs["rate"] == 7.0 and built.rate == 0.1

    @pytest.mark.parametrize("path", ["rat", "layers[5].size", "layers[0].sise", "rate.x", "", "a..b", "new"])
    def test_a_path_that_leads_nowhere_is_refused(self, cfg, path):
        with pytest.raises(ConfigError):
            konfig.resolve(cfg, overlay={path: 1})

    def test_tracers_pass_through_arithmetic(self, cfg):
        cfg.scaled = cfg.ref.rate * 2 + 1

        @jax.jit
        def traced(rate):
            return konfig.resolve(cfg, overlay={"rate": rate}).scaled

        assert traced(jnp.float32(3)) == 7
        assert jax.jit(jax.vmap(traced))(jnp.arange(3.0)).tolist() == [1, 3, 5]


def test_a_functools_partial_of_a_constant():
    cfg = konfig.ConfigDict({"f": functools.partial(sample.double, 3)})
    assert konfig.resolve(cfg).f() == 6


def test_default_values_of_a_target(monkeypatch):
    monkeypatch.setattr(defaults, "_defaults", [])  # Those of the Trainer stand again after this test.
    konfig.register_default_values(
        sample.Hooked(raw={"evals": {}, "x": 1}, other=konfig.placeholder(str)),
    )
    cfg = sample.Hooked()
    cfg.raw.evals.val = 3
    assert cfg.other is None and "placeholder(str)" in repr(cfg)
    assert sample.Hooked().raw.to_dict() == {"evals": {}, "x": 1}
    assert sample.Hooked(raw={"x": 2}).raw.to_dict() == {"x": 2, "evals": {}}
    assert sample.Hooked(other="a").other == "a"
    assert nodes.origin(sample.Hooked().raw).file == __file__
    with pytest.raises(ConfigError, match="takes a call"):
        konfig.register_default_values(konfig.ConfigDict({"a": 1}))


def test_exporting_and_resolving_are_inverse():
    from tests.kauldron_core.konfig.sample import Color, Point

    obj = {"layer": Layer(1, inner=(Layer(2), Point(1, 2))), "types": [int, load, Color.RED], "n": None, "s": {1}}
    data = konfig.export(obj)
    assert data["layer"] == {
        "__qualname__": f"{Layer.__module__}:Layer",
        "size": 1,
        "inner": (
            {"__qualname__": f"{Layer.__module__}:Layer", "size": 2},
            {"__qualname__": f"{Layer.__module__}:Point", "x": 1, "y": 2},
        ),
    }
    assert konfig.resolve(data, freeze=False) == obj
    assert konfig.resolve(konfig.from_json(konfig.to_json(konfig.ConfigDict(data))), freeze=False) == obj


def test_exporting_arrays_modules_and_custom_objects():
    import flax.linen as nn
    import numpy as np

    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    data = konfig.export({"np": array, "jax": jnp.ones(2, jnp.bfloat16), "dense": nn.Dense(3), "own": Hooked(other=1)})
    built = konfig.resolve(konfig.from_json(konfig.to_json(konfig.ConfigDict(data))))
    assert built.np.dtype == array.dtype and (built.np == array).all()
    assert built.jax.dtype == jnp.bfloat16 and isinstance(built.jax, jax.Array)
    assert built.dense == nn.Dense(3) and built.own.other == 1
    with pytest.raises(ConfigError, match=r"obj\.a\[0\]: an object of type object cannot be exported"):
        konfig.export({"a": [object()]})
    assert konfig.export_qualname(nn.Dense(3)) == "flax.linen:Dense"


def test_get_config_from_module():
    from types import ModuleType

    module = ModuleType("a_config_module")
    with pytest.raises(ConfigError, match="unknown function 'get_config'"):
        konfig.get_config_from_module(module)
    module.get_config = lambda size="small": konfig.ConfigDict({"size": size})
    assert konfig.get_config_from_module(module).size == "small"
    assert konfig.get_config_from_module(module, "large").size == "large"
    module.get_config = lambda: 3
    with pytest.raises(ConfigError, match="returned a int"):
        konfig.get_config_from_module(module)


def test_annotations_for_configs():
    def function(layer: konfig.ConfigDictLike[Layer], cfg: konfig.WithRef) -> None: ...

    assert function.__annotations__


def test_the_saved_form_resolves_to_the_same(tmp_path):
    cfg = konfig.ConfigDict({"a": sample.Layer(1, inner=sample.Layer(2)), "t": (1,), "n": 3})
    cfg.b = cfg.ref.n + 1
    assert konfig.resolve(json.loads(konfig.to_json(cfg))) == konfig.resolve(cfg)
