"""What a config holds comes back from a file as the same value of the same type, or saving names its path."""

import collections
import enum
import json
import math
import pathlib
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from kauldron_core import konfig
from kauldron_core.errors import ConfigError
from tests.kauldron_core.konfig.sample import Color, Layer, Size, load

with konfig.imports():
    import functools

    import numpy as cnp

    from tests.kauldron_core.konfig import sample


def round_trip(value):
    return konfig.from_json(konfig.to_json(konfig.ConfigDict({"x": value}))).x


def same(one, other):
    """Whether two values are equal and of equal types all the way down."""
    if isinstance(one, (konfig.ConfigDict, dict)):
        items = [list(tree.items()) for tree in (one, other)]
        return len(items[0]) == len(items[1]) and all(
            same(a[0], b[0]) and same(a[1], b[1]) for a, b in zip(*items, strict=True)
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (float, np.floating)) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return one == other


VALUES = [
    None,
    True,
    0,
    -(2**80),
    1e-300,
    -0.0,
    float("inf"),
    float("nan"),
    "",
    "text with 'quotes' and \u2713 and \x00",
    "__qualname__",
    b"",
    b"\x00\xff",
    2 + 3j,
    (),
    (1,),
    (1, (2, [3, (4,)])),
    [],
    {1, 2},
    set(),
    frozenset({"a"}),
    {(1, 2)},
    slice(None),
    slice(1, None, -1),
    ...,
    Color.RED,
    Color.GREEN,
    Size.SMALL,
    pathlib.Path("a/b"),
    pathlib.PurePosixPath("/x"),
    np.float32(0.1),
    np.float64(0.1),
    np.int8(-3),
    np.bool_(True),
    np.complex64(1 + 2j),
    np.dtype("float16"),
    np.dtype("bool"),
    {},
    {"a": {"b": ()}},
    {1: "int", "1": "text", None: 1, 1.5: 2, False: 3, (1, "a"): 4, b"x": 5},
    {Color.RED: 1},
    {"__raw__=1": "a text that looks like a marked key"},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_the_same_type(value):
    original = konfig.ConfigDict({"x": value})
    assert same(round_trip(value), original.x)
    assert same(konfig.ConfigDict(json.loads(konfig.to_json(original))).x, original.x)


def test_half_precision_floats_of_machine_learning_come_back():
    import ml_dtypes

    for value in (ml_dtypes.bfloat16(1.5), np.dtype(ml_dtypes.float8_e4m3fn)):
        assert same(round_trip(value), value)


def test_paths_of_etils_come_back():
    from etils import epath

    assert same(round_trip(epath.Path("a/b")), epath.Path("a/b"))


DTYPES = st.one_of(
    npst.scalar_dtypes(),
    npst.datetime64_dtypes(endianness="?"),
    npst.timedelta64_dtypes(endianness="?"),
    npst.byte_string_dtypes(endianness="?"),
    npst.unicode_string_dtypes(endianness="?"),
    npst.array_dtypes(),
    npst.nested_dtypes(),
)


@given(DTYPES)
def test_a_dtype_comes_back_or_is_refused_with_its_path(dtype):
    """F32: big-endian, times, texts and structures came back as another dtype, or could not be read again."""
    try:
        text = konfig.to_json(konfig.ConfigDict({"inner": {"dtype": dtype}}))
    except ConfigError as error:
        assert "cfg.inner.dtype: cannot be saved: the dtype" in str(error)
        assert dtype.subdtype is not None or dtype.fields is not None
    else:
        found = konfig.from_json(text).inner.dtype
        assert found == dtype and found.str == dtype.str


@pytest.mark.parametrize("unit", ["D", "s", "ns", "25us"])
def test_times_come_back_with_their_unit(unit):
    """F32: a moment was saved as a number without its unit, and could not be read."""
    for value in (np.datetime64(12345, unit), np.timedelta64(-7, unit), np.datetime64("NaT", unit)):
        found = round_trip(value)
        assert found.dtype == value.dtype and found.astype("int64") == value.astype("int64")


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ({"f": {"__qualname__": "optax:adam", "__partial__": True}}, "cfg.f: unknown marker '__partial__'"),
        ({"f": {"x": {"__decimal__": "1.0"}}}, "cfg.f.x: unknown marker '__decimal__'"),
        ({"__version__": 2}, "cfg: unknown marker '__version__'"),
        ({"f": [{"__tuple__": [1], "__partial__": 1}]}, r"cfg.f\[0\]: unknown key beside __tuple__ '__partial__'"),
        ({"f": {"__tupel__": [1]}}, r"cfg.f: unknown marker '__tupel__'. Did you mean '__tuple__'"),
        ({"f": {"__path__": "a", "kind": "b"}}, "cfg.f: unknown key beside __path__ 'kind'"),
    ],
)
def test_unknown_markers_are_refused_and_named(written, named):
    """F33: what another version had written became an argument of a call, or a dict."""
    for read in (lambda: konfig.from_json(json.dumps(written)), lambda: konfig.ConfigDict(written)):
        with pytest.raises(ConfigError, match=named):
            read()


def test_a_field_that_looks_like_a_marker_is_refused_when_it_is_set():
    """F33: it could be saved, and not be read again."""
    cfg = konfig.ConfigDict({"a": {}})
    with pytest.raises(ConfigError, match=r"unknown marker '__kind__'"):
        cfg.a["__kind__"] = 1


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.complex_numbers(allow_nan=False),
    st.just(...),
    st.builds(slice, st.none() | st.integers(), st.none() | st.integers(), st.none() | st.integers()),
    st.sampled_from([*Color, *Size, np.dtype("int32"), np.float32(2), pathlib.Path("p")]),
    st.sets(st.integers() | st.text(max_size=3), max_size=3),
    st.frozensets(st.integers(), max_size=3),
)
KEYS = st.text(max_size=6) | st.integers() | st.none() | st.booleans() | st.sampled_from(Color) | st.binary(max_size=3)
KEYS = KEYS.filter(lambda key: not (isinstance(key, str) and key.startswith("__")))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.builds(lambda x: {"__qualname__": f"{Layer.__module__}:Layer", "size": 1, "inner": x}, inner),
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(KEYS, TREES, max_size=4))
def test_any_tree_comes_back(tree):
    cfg = konfig.ConfigDict(tree)
    text = konfig.to_json(cfg)
    loaded = konfig.from_json(text)
    assert same(loaded, cfg)
    assert konfig.to_json(loaded) == text
    assert konfig.fingerprint(loaded) == konfig.fingerprint(cfg)


def test_an_enum_comes_back_as_member_and_as_key(tmp_path):
    """K04: an enum comes back as member and as key."""
    konfig.save(konfig.ConfigDict({"color": Color.RED, "by_color": {Color.GREEN: 1}}), tmp_path / "c.json")
    text = (tmp_path / "c.json").read_text()
    assert "pickle" not in text and "!!" not in text
    loaded = konfig.load(tmp_path / "c.json")
    assert loaded.color is Color.RED
    assert list(loaded.by_color) == [Color.GREEN]


def test_what_json_cannot_carry_is_named_with_its_path_each_time(tmp_path):
    """K06: what json cannot carry is named with its path each time."""
    cfg = konfig.ConfigDict({"f": lambda x: x, "inner": {"items": [1, (2, 3)]}, "fine": 1})
    cfg.inner["items"].append(np.ones(3))  # Lists can be changed behind the config's back.
    with pytest.raises(ConfigError) as caught:
        konfig.save(cfg, tmp_path / "c.json")
    assert "cfg.f: cannot be saved" in str(caught.value)
    assert "cfg.inner.items[2]: cannot be saved: an object of type numpy.ndarray" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "c.json").exists()

    (tmp_path / "c.json").write_text(cfg.to_json_best_effort())
    assert json.loads((tmp_path / "c.json").read_text())["fine"] == 1
    with pytest.raises(ConfigError, match=r"cfg\.f: .*best-effort"):
        konfig.load(tmp_path / "c.json")


def test_saving_over_a_file_fails_without_touching_it(tmp_path):
    konfig.save(konfig.ConfigDict({"a": 1}), tmp_path / "c.json")
    with pytest.raises(ConfigError):
        konfig.save(konfig.ConfigDict({"a": lambda: 1}), tmp_path / "c.json")
    assert konfig.load(tmp_path / "c.json").a == 1


def test_a_nested_class_is_called_by_its_full_name(tmp_path):
    """K10: a nested class is called by its full name."""
    cfg = konfig.ConfigDict({"x": sample.Layer.Nested(x=3), "cls": Layer.Nested, "made": sample.Layer.doubled(2)})
    cfg.method = Layer.doubled
    konfig.save(cfg, tmp_path / "c.json")
    built = konfig.resolve(konfig.load(tmp_path / "c.json"))
    assert type(built.x) is Layer.Nested and built.x.x == 3
    assert built.cls is Layer.Nested
    assert built.made == Layer(4) and built.method(5) == Layer(10)


@pytest.mark.parametrize("make", ["lambda", "local function", "local class", "local enum", "instance method"])
def test_what_has_no_importable_name_is_refused_with_its_path(make):
    """K10: what has no importable name is refused with its path."""

    def local():
        pass

    class Local:
        def method(self):
            pass

    class LocalEnum(enum.Enum):
        A = 1

    values = {
        "lambda": lambda: 1,
        "local function": local,
        "local class": Local,
        "local enum": LocalEnum.A,
        "instance method": Local().method,
    }
    cfg = konfig.ConfigDict({"deep": [{"x": values[make]}]})
    with pytest.raises(ConfigError, match=r"cfg\.deep\[0\]\.x: cannot be saved"):
        konfig.to_json(cfg)


def test_a_saved_config_is_nested_json_and_reads_the_same_twice(tmp_path):
    """K12: a saved config is nested json and reads the same twice."""
    cfg = konfig.ConfigDict({"params": {"lr": 1e-3, "layers": [{"size": 1}]}})
    konfig.save(cfg, tmp_path / "c.json")
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["config"]["params"]["layers"][0]["size"] == 1
    assert "0x" not in (tmp_path / "c.json").read_text()
    first, second = konfig.load(tmp_path / "c.json"), konfig.load(tmp_path / "c.json")
    assert first == second == cfg


def test_sub_configs_in_lists_tuples_and_dicts_are_written_out():
    """K14: sub configs in lists tuples and dicts are written out."""
    inner = sample.Layer(1)
    cfg = konfig.ConfigDict({"l": [inner], "t": (sample.Layer(2), [sample.Layer(3)]), "d": {"k": sample.Layer(4)}})
    document = json.loads(konfig.to_json(cfg))
    name = f"{Layer.__module__}:Layer"
    assert document["l"] == [{"__qualname__": name, "0": 1}]
    assert document["t"]["__tuple__"][1] == [{"__qualname__": name, "0": 3}]
    assert document["d"]["k"] == {"__qualname__": name, "0": 4}
    assert konfig.resolve(konfig.from_json(json.dumps(document))).t == (Layer(2), (Layer(3),))


def test_a_plain_function_is_saved_and_loaded_by_its_path(tmp_path):
    """K16: a plain function is saved and loaded by its path."""
    cfg = konfig.ConfigDict({"loader": load, "partial": functools.partial(load)})
    assert cfg.loader == konfig.ConfigDict({"__const__": f"{load.__module__}:load"})
    konfig.save(cfg, tmp_path / "c.json")
    loaded = konfig.load(tmp_path / "c.json")
    assert konfig.resolve(loaded).loader is load and konfig.resolve(loaded).partial() == [1, 2, 3]
    assert loaded == cfg


def test_public_names_are_saved_instead_of_private_ones():
    import jax
    import optax

    cfg = konfig.ConfigDict({"a": jax.nn.relu, "b": optax.adam, "c": jax.numpy.float32, "d": jax.lax.Precision.HIGHEST})
    document = json.loads(konfig.to_json(cfg))
    assert [document[key]["__const__"] for key in "abc"] == ["jax.nn:relu", "optax:adam", "jax.numpy:float32"]
    assert document["d"] == {"__enum__": "jax.lax:Precision.HIGHEST"}
    built = konfig.resolve(konfig.from_json(json.dumps(document)))
    assert built.a is jax.nn.relu and built.b is optax.adam and built.d is jax.lax.Precision.HIGHEST


def test_unions_partials_and_types_come_back():
    cfg = konfig.ConfigDict(
        {"u": int | None, "v": cnp.float32 | cnp.int8, "w": int | cnp.int8, "p": functools.partial(sample.double, 3)}
    )
    cfg.none, cfg.real = type(None), functools.partial
    built = konfig.resolve(konfig.from_json(konfig.to_json(cfg)))
    assert built.u == int | None and built.v == np.float32 | np.int8 and built.w == int | np.int8
    assert built.p() == 6 and built.none is type(None)


def test_a_real_partial_becomes_a_call():
    import functools as real_functools

    cfg = konfig.ConfigDict({"p": real_functools.partial(sample.double, x=3)})
    assert cfg.p["0"] == konfig.ConfigDict({"__const__": f"{Layer.__module__}:double"})
    assert konfig.resolve(cfg).p() == 6


def test_the_plain_form_is_what_kauldron_reads():
    shared = sample.Layer(1)
    cfg = konfig.ConfigDict({"t": (1, 2), "path": pathlib.Path("a/b"), 1: "int key", "s": shared, "again": [shared]})
    cfg.ref_to_t, cfg.p = cfg.ref.t[0], konfig.placeholder(int)
    document = json.loads(cfg.to_json())
    call = {"__qualname__": f"{Layer.__module__}:Layer", "0": 1, "__id__": 0}
    assert document == {
        "t": [1, 2],
        "path": "a/b",
        "__raw__=1": "int key",
        "s": call,
        "again": [call],
        "ref_to_t": 1,
        "p": None,
    }
    assert document == json.loads(konfig.to_json(cfg, references=False))
    loaded = konfig.from_json(cfg.to_json())
    assert loaded.s is loaded.again[0] and loaded[1] == "int key"


def test_a_config_inside_itself_is_saved_with_references_only():
    cfg = konfig.ConfigDict({"a": 1})
    cfg.me = cfg
    loaded = konfig.from_json(konfig.to_json(cfg))
    assert loaded.me is loaded
    with pytest.raises(ConfigError, match=r"cfg\.me: .*contains itself"):
        cfg.to_json()
    with pytest.raises(ConfigError, match="contains itself"):
        konfig.fingerprint(cfg)


KAULDRON = {
    "__qualname__": "kauldron.kd:train.Trainer",
    "seed": 42,
    "model": {"__qualname__": "flax.linen:Dense", "0": 3, "__id__": 0},
    "again": {"__qualname__": "flax.linen:Dense", "0": 3, "__id__": 0},
    "old_style": {"__qualname__": "optax.adam", "0": 0.1},
    "xm_job": {"__qualname__": "kauldron.contrib.xm:Job"},
    "inner": {"xm_job": None},
    "rngs": {"__raw__=1": {"__const__": "kauldron.kd:random"}},
}


def test_a_file_that_kauldron_wrote_is_read(tmp_path, caplog):
    (tmp_path / "c.json").write_text(json.dumps(KAULDRON))
    cfg = konfig.load(tmp_path / "c.json")
    assert cfg["__qualname__"] == "kauldron_core.kd:train.Trainer"
    assert cfg.rngs[1]["__const__"] == "kauldron_core.kd:random"
    assert cfg.model is cfg.again
    assert "xm_job" not in cfg and "xm_job" not in cfg.inner
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'c.json'}: {place} (Kauldron's launcher) is left out: sweeps are started by other means here"
        for place in ("cfg.xm_job", "cfg.inner.xm_job")
    ]
    assert konfig.resolve(cfg.old_style) is not None


def test_a_name_that_is_missing_here_is_an_error_with_its_path():
    cfg = konfig.from_json(json.dumps({"x": [{"__qualname__": "kauldron.metrics:ThereIsNoSuchMetric"}]}))
    with pytest.raises(ConfigError, match=r"cfg\.x\[0\]: .*ThereIsNoSuchMetric"):
        konfig.resolve(cfg)


def test_files_carry_a_version_and_another_is_refused(tmp_path):
    konfig.save(konfig.ConfigDict({"a": 1}), tmp_path / "c.json")
    document = json.loads((tmp_path / "c.json").read_text())
    assert document == {"__konfig__": 1, "config": {"a": 1}}
    document["__konfig__"] = 99
    (tmp_path / "c.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="written in format 99; this version reads 1"):
        konfig.load(tmp_path / "c.json")


def test_mappings_of_others_become_plain_dicts():
    import flax

    cfg = konfig.ConfigDict(
        {
            "ordered": collections.OrderedDict(a=1),
            "proxy": types.MappingProxyType({"a": 1}),
            "frozen": flax.core.FrozenDict({"a": 1}),
            "resolved": konfig.resolve({"a": 1}),
        }
    )
    assert all(cfg[key].to_dict() == {"a": 1} for key in cfg)


def test_unknown_shared_ids_and_forged_placeholders_are_refused():
    for node in ({"__id__": 3}, {"__placeholder__": None, "__id__": 3}, {"__placeholder__": "builtins:len"}):
        with pytest.raises(ConfigError):
            konfig.from_json(json.dumps({"x": node}))
