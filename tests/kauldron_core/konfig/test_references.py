"""References follow their source, through arithmetic, copies and files; they are data and can be saved."""

import copy
import json
import operator
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kauldron_core import konfig
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.tree.references import is_reference
from tests.kauldron_core.konfig.sample import Color, double

with konfig.imports():
    from tests.kauldron_core.konfig import sample


@pytest.fixture
def cfg():
    return konfig.ConfigDict(
        {"steps": 100, "rate": 0.5, "name": "run", "model": {"sizes": [1, 2, 3], "inner": sample.Layer(4)}}
    )


def copies(cfg):
    return {
        "itself": cfg,
        "deepcopy": copy.deepcopy(cfg),
        "pickle": pickle.loads(pickle.dumps(cfg)),
        "JSON": konfig.from_json(konfig.to_json(cfg)),
        "ConfigDict of JSON": konfig.ConfigDict(json.loads(konfig.to_json(cfg))),
    }


EXPRESSIONS = {
    "path": (lambda r: r.steps, 10),
    "nested path": (lambda r: r.model.sizes[1], 2),
    "negative index": (lambda r: r.model.sizes[-1], 3),
    "slice": (lambda r: r.model.sizes[1:], [2, 3]),
    "item": (lambda r: r["model"]["sizes"], [1, 2, 3]),
    "argument by position": (lambda r: r.model.inner[0], 4),
    "add": (lambda r: r.steps + 1, 11),
    "radd": (lambda r: 1 + r.steps, 11),
    "sub": (lambda r: r.steps - 1, 9),
    "rsub": (lambda r: 1 - r.steps, -9),
    "mul": (lambda r: r.steps * 2, 20),
    "rmul": (lambda r: 2 * r.steps, 20),
    "truediv": (lambda r: r.steps / 4, 2.5),
    "rtruediv": (lambda r: 5 / r.steps, 0.5),
    "floordiv": (lambda r: r.steps // 3, 3),
    "rfloordiv": (lambda r: 35 // r.steps, 3),
    "mod": (lambda r: r.steps % 3, 1),
    "rmod": (lambda r: 13 % r.steps, 3),
    "pow": (lambda r: r.steps**2, 100),
    "rpow": (lambda r: 2**r.steps, 1024),
    "and": (lambda r: (r.steps > 3) & (r.rate < 1), True),
    "rand": (lambda r: True & (r.steps > 3), True),
    "or": (lambda r: (r.steps > 30) | (r.rate < 1), True),
    "ror": (lambda r: False | (r.steps > 3), True),
    "xor": (lambda r: (r.steps > 3) ^ True, False),
    "rxor": (lambda r: True ^ (r.steps > 3), False),
    "neg": (lambda r: -r.steps, -10),
    "pos": (lambda r: +r.steps, 10),
    "invert": (lambda r: ~r.steps, -11),
    "abs": (lambda r: abs(-r.steps), 10),
    "comparisons": (lambda r: [r.steps < 1, r.steps <= 10, r.steps > 1, r.steps >= 11], [False, True, True, False]),
    "equal": (lambda r: [r.steps == 10, r.steps != 10], [True, False]),
    "casts": (lambda r: [(r.steps / 3).to_int(), r.steps.to_float(), r.steps.to_str()], [3, 10.0, "10"]),
    "method": (lambda r: r.name.upper(), "RUN"),
    "method with arguments": (lambda r: r.name.removeprefix("r"), "un"),
    "text": (lambda r: r.name + "-" + r.steps.to_str(), "run-10"),
    "item of a result": (lambda r: (r.model.sizes + r.model.sizes)[-1], 3),
    "function": (lambda r: konfig.ref_fn(double, r.steps), 20),
    "several operands": (lambda r: (r.steps + r.steps) * (r.rate + 1) - r.model.sizes[0], 29.0),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_is_computed_when_it_is_read_and_survives_every_copy(cfg, name):
    make, expected = EXPRESSIONS[name]
    cfg.x = make(cfg.ref)
    for kind, other in copies(cfg).items():
        if kind != "itself" and kind.endswith("JSON"):
            konfig.trust("tests")
        other.steps = 10
        assert other.x == expected if not isinstance(expected, list) else _read(other.x) == expected, kind
        assert konfig.resolve(other).x == (tuple(expected) if isinstance(expected, list) else expected)


def _read(values):
    return [konfig.ConfigDict({"x": value}).x for value in values]


def test_a_saved_reference_is_readable_data(cfg):
    cfg.decay = cfg.ref.steps
    cfg.twice = cfg.ref.model.sizes[0] * 2
    saved = json.loads(konfig.to_json(cfg))
    assert saved["decay"] == {"__ref__": "steps"}
    assert saved["twice"] == {"__op__": "mul", "args": [{"__ref__": "model.sizes[0]"}, 2]}
    assert json.loads(konfig.to_json(cfg, references=False))["decay"] == 100


def test_two_fields_of_one_sub_config_build_twice_alike(cfg):
    """K08: two fields of one sub config build twice alike."""
    cfg.first = cfg.ref.model.inner
    cfg.second = cfg.ref.model.inner
    before = konfig.to_json(cfg)
    for _ in range(2):
        built = konfig.resolve(cfg)
        assert built.first is built.second is built.model.inner
        assert built.first.size == 4
        assert konfig.to_json(cfg) == before


def test_overwriting_a_field_leaves_its_source_alone(cfg):
    cfg.x = cfg.ref.steps
    cfg.x = 5
    assert (cfg.steps, cfg.x) == (100, 5)


def test_references_reach_what_comes_later():
    cfg = konfig.ConfigDict({})
    cfg.x = cfg.ref.model.size + 1
    with pytest.raises(ConfigError, match=r"cfg\.ref\.model\.size: unknown field 'model'"):
        _ = cfg.x
    cfg.model = {"size": 1}
    assert cfg.x == 2


def test_a_miss_says_what_is_there(cfg):
    cfg.x = cfg.ref.model.inner.sise
    with pytest.raises(AttributeError, match="unknown field 'sise'"):
        _ = cfg.x
    cfg.x = cfg.ref.model.sizes[7]
    with pytest.raises(ConfigError, match=r"cfg\.x: cfg\.ref\.model\.sizes"):
        konfig.resolve(cfg)


def test_a_circle_is_found(cfg):
    cfg.a = cfg.ref.b + 1
    cfg.b = cfg.ref.a + 1
    with pytest.raises(ConfigError, match="leads back to itself"):
        _ = cfg.a
    with pytest.raises(ConfigError, match="leads back to itself"):
        konfig.resolve(cfg)


def test_decisions_about_references_are_refused_with_their_name(cfg):
    for decide in (bool, list, lambda ref: 1 in ref, lambda ref: 1 if ref else 2):
        with pytest.raises(TypeError, match=r"cfg\.ref\.steps \* 2.*ref_fn"):
            decide(cfg.ref.steps * 2)
    with pytest.raises(ConfigError, match=r"cfg\.ref\.steps cannot be set"):
        cfg.ref.steps = 5


def test_a_reference_shows_as_it_was_written(cfg):
    assert repr(cfg.ref.a["b.c"][0]) == "<reference cfg.ref.a['b.c'][0]>"
    assert repr((cfg.ref.a + 1) * -cfg.ref.b) == "<reference (cfg.ref.a + 1) * (-cfg.ref.b)>"
    assert repr(cfg.ref.a.f(1, x=cfg.ref.b)) == "<reference cfg.ref.a.f(1, x=cfg.ref.b)>"
    assert len(repr(sum([cfg.ref.a] * 500, cfg.ref.b))) < 300
    assert is_reference(cfg.ref.a) and not is_reference(1)


def test_ref_fn_as_decorator_and_inline(cfg):
    @konfig.ref_fn
    def joined(name, *, times):
        return name * times

    cfg.x = joined(cfg.ref.name, times=2)
    cfg.y = konfig.ref_fn(lambda value: value + 1, cfg.ref.steps)
    cfg.name, cfg.steps = "ab", 1
    assert (cfg.x, cfg.y) == ("abab", 2)
    assert copy.deepcopy(cfg).x == "abab"


def test_lambdas_and_local_functions_are_refused_when_saved(cfg):
    """K10: lambdas and local functions are refused when saved."""
    cfg.x = konfig.ref_fn(lambda value: value, cfg.ref.steps)
    cfg.model.f = lambda x: x

    class Local:
        pass

    cfg.model.cls = Local
    with pytest.raises(ConfigError) as caught:
        konfig.to_json(cfg)
    for path in ("cfg.x", "cfg.model.f", "cfg.model.cls"):
        assert f"{path}" in str(caught.value)
    assert konfig.resolve(cfg).model.f(3) == 3


def test_a_function_of_a_module_is_saved_by_name(cfg):
    cfg.x = konfig.ref_fn(double, cfg.ref.steps)
    saved = konfig.to_json(cfg)
    assert json.loads(saved)["x"]["args"][0] == {"__const__": "tests.kauldron_core.konfig.sample:double"}
    konfig.trust("tests")
    assert konfig.from_json(saved).x == 200


def test_ref_copy_follows_until_it_is_changed():
    source = konfig.ConfigDict({"src": {"name": "mnist", "split": "train"}, "batch": 32, "call": sample.Layer(1)})
    copied = konfig.ref_copy(source)
    copied.src.split = "test"
    source.batch, source.src.name = 128, "cifar"
    source.call[0] = 5
    assert copied.to_dict()["src"] == {"name": "cifar", "split": "test"}
    assert (copied.batch, source.src.split) == (128, "train")
    assert konfig.resolve(copied).call.size == 5
    source.new = 1
    assert "new" not in copied


def test_ref_copy_inside_the_same_config_survives_saving(cfg):
    cfg.train = {"batch": 32, "shuffle": True}
    cfg.test = konfig.ref_copy(cfg.train)
    cfg.test.shuffle = False
    loaded = konfig.from_json(konfig.to_json(cfg))
    loaded.train.batch = 8
    assert loaded.test.to_dict() == {"batch": 8, "shuffle": False}


def test_a_reference_out_of_what_is_saved_is_refused_with_its_path(cfg):
    cfg.model.steps = cfg.ref.steps
    with pytest.raises(ConfigError, match=r"cfg\.steps: cannot be saved: cfg\.ref\.steps leads out of the config"):
        konfig.to_json(cfg.model)
    assert json.loads(konfig.to_json(cfg.model, references=False))["steps"] == 100
    assert cfg.model.copy_and_resolve_references().steps == 100


def test_a_part_keeps_the_references_inside_it(cfg):
    cfg.model.first = cfg.ref.model.sizes[0]
    part = konfig.from_json(konfig.to_json(cfg.model))
    part.sizes = [7]
    assert part.first == 7
    copied = copy.deepcopy(cfg.model)
    copied.sizes = [8]
    assert (copied.first, cfg.model.first) == (8, 1)


def test_a_copied_part_still_follows_what_lies_outside(cfg):
    cfg.model.steps = cfg.ref.steps
    copied = copy.deepcopy(cfg.model)
    cfg.steps = 3
    assert copied.steps == 3


def test_placeholders():
    cfg = konfig.ConfigDict({"a": konfig.placeholder(int), "b": konfig.required(str)})
    cfg.twice = cfg.ref.a * 2
    assert cfg.a is None and cfg.twice is None
    with pytest.raises(ConfigError, match="a required str has no value"):
        _ = cfg.b
    with pytest.raises(ConfigError, match=r"cfg\.b: a required str has no value"):
        konfig.resolve(cfg)
    for other in copies(cfg).values():
        other.a, other.b = 3, "x"
        assert konfig.resolve(other) == {"a": 3, "b": "x", "twice": 6}
    unset = konfig.ConfigDict({"a": konfig.placeholder(int)})
    assert json.loads(konfig.to_json(unset, references=False)) == {"a": None}


def test_a_shared_placeholder_has_one_value():
    shared = konfig.placeholder(int)
    cfg = konfig.ConfigDict({"a": shared, "b": {"c": shared}})
    for other in copies(cfg).values():
        other.a = 3
        assert other.b.c == 3


def test_equality_tests_may_ask_for_none():
    cfg = konfig.ConfigDict({"a": konfig.placeholder(int)})
    cfg.is_unset = cfg.ref.a == None  # noqa: E711
    assert cfg.is_unset is True
    cfg.a = 1
    assert cfg.is_unset is False


def test_enums_and_configs_are_operands_too(cfg):
    cfg.color = Color.RED
    cfg.is_red = cfg.ref.color == Color.RED
    konfig.trust("tests")
    for other in copies(cfg).values():
        assert other.is_red is True


OPERATORS = [operator.add, operator.sub, operator.mul]


@st.composite
def graphs(draw):
    """Fields in a random order, each a number or an operation on earlier ones; and the same as plain Python."""
    count = draw(st.integers(1, 12))
    steps = []
    for index in range(count):
        if index == 0 or draw(st.booleans()):
            steps.append(draw(st.integers(-5, 5)))
        else:
            left = draw(st.integers(0, index - 1))
            right = draw(st.integers(0, index - 1) | st.none())
            steps.append((draw(st.sampled_from(OPERATORS)), left, right, draw(st.integers(-3, 3))))
    order = draw(st.permutations(range(count)))
    return steps, order


def _place(index):
    return ("even", f"k{index}") if index % 2 == 0 else ("odd", f"k{index}")


def _build(steps, order):
    cfg = konfig.ConfigDict({"even": {}, "odd": {"list": [{}]}})
    for index in order:
        step = steps[index]
        if not isinstance(step, int):
            function, left, right, constant = step
            refs = [cfg.ref[_place(place)[0]][_place(place)[1]] for place in (left, right) if place is not None]
            step = function(refs[0], refs[1] if len(refs) > 1 else constant)
        where, key = _place(index)
        cfg[where][key] = step
    return cfg


def _compute(steps):
    values = []
    for step in steps:
        if not isinstance(step, int):
            function, left, right, constant = step
            step = function(values[left], constant if right is None else values[right])
        values.append(step)
    return values


@settings(deadline=None)
@given(graphs(), st.integers(-9, 9))
def test_a_graph_of_references_computes_the_same_after_every_round_trip(graph, changed):
    steps, order = graph
    cfg = _build(steps, order)
    for other in copies(cfg).values():
        assert [other[_place(i)[0]][_place(i)[1]] for i in range(len(steps))] == _compute(steps)
        other.even.k0 = changed
        expected = _compute([changed, *steps[1:]])
        assert [other[_place(i)[0]][_place(i)[1]] for i in range(len(steps))] == expected
        built = konfig.resolve(other)
        assert [built[_place(i)[0]][_place(i)[1]] for i in range(len(steps))] == expected
    assert cfg.even.k0 == changed  # `copies` holds the config itself.
    assert konfig.to_json(konfig.from_json(konfig.to_json(cfg))) == konfig.to_json(cfg)


def test_operands_may_hold_references_in_lists_and_dicts(cfg):
    cfg.x = konfig.ref_fn(lambda items, extra: [*items, extra.a], [cfg.ref.steps, (cfg.ref.rate,)], {"a": 1})
    assert cfg.x == [100, (0.5,), 1]


def test_an_operand_that_is_a_built_object_is_refused(cfg):
    with pytest.raises(ConfigError, match="cannot hold"):
        cfg.x = konfig.ref_fn(double, object())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda ref: ref.name + 1, r"cfg\.ref\.name \+ 1: TypeError: can only concatenate str"),
        (lambda ref: ref.steps // 0, r"cfg\.ref\.steps // 0: ZeroDivisionError"),
        (lambda ref: ref.name.to_int(), r"int\(cfg\.ref\.name\): ValueError: invalid literal"),
        (lambda ref: ref.rate * 10**400, r"OverflowError"),
        (lambda ref: ref.name * 10**9, r"longer than 1000000 entries"),
        (lambda ref: ref.steps**10**6, r"longer than 10000 bits"),
    ],
)
def test_arithmetic_that_fails_says_which(cfg, make, message):
    cfg.x = make(cfg.ref)
    with pytest.raises(ConfigError, match=message):
        _ = cfg.x
    with pytest.raises(ConfigError, match=r"cfg\.x: .*" + message):
        konfig.resolve(cfg)


@pytest.mark.parametrize(("depth", "width"), [(22, 2), (39, 4)])
@pytest.mark.parametrize("as_nodes", [False, True], ids=["lists", "dicts"])
@pytest.mark.parametrize("loaded", [False, True], ids=["written", "from a file"])
def test_a_config_that_explodes_is_refused_at_once(depth: int, width: int, as_nodes: bool, loaded: bool) -> None:
    """F53: lists of references, each to the one before: resolve hung."""
    cfg: Any = konfig.ConfigDict({"a0": {"x": 1} if as_nodes else [1]})
    for number in range(1, depth):
        before = cfg.ref[f"a{number - 1}"]
        cfg[f"a{number}"] = {f"x{copy}": before for copy in range(width)} if as_nodes else [before] * width
    if loaded:
        cfg = konfig.from_json(konfig.to_json(cfg))
    bounded = [konfig.flatten, konfig.fingerprint, lambda cfg: cfg.to_json()]
    for function in bounded if as_nodes else [konfig.resolve, *bounded]:
        with pytest.raises(ConfigError, match=r"cfg\.a\d+.*holds more than 1,000,000 values when its references"):
            function(cfg)
    assert len(konfig.to_json(cfg)) < 100_000
    if as_nodes:  # Each is built once.
        assert konfig.resolve(cfg)["a1"]["x0"]["x"] == 1
