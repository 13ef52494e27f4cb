"""A config read from disk cannot run foreign code: refused before anything is imported or called."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kauldron_core import konfig
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.tree import marked, operations
from tests.kauldron_core.konfig.hostile import HOSTILE, call, const, op, ref

UNTOUCHED = ("antigravity", "runpy", "code", "timeit", "pty")


def _with_canary(value, canary):
    return json.loads(json.dumps(value).replace("{canary}", str(canary)))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(name, tmp_path):
    canary = tmp_path / "canary"
    document = {"x": _with_canary(HOSTILE[name], canary)}
    (tmp_path / "config.json").write_text(json.dumps({"__konfig__": 1, "config": document}))
    before = {module for module in UNTOUCHED if module in sys.modules}

    with pytest.raises(ConfigError) as caught:
        konfig.resolve(konfig.load(tmp_path / "config.json"))
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError):
        konfig.resolve(konfig.ConfigDict(document), trusted=False)

    assert not canary.exists()
    assert {module for module in UNTOUCHED if module in sys.modules} == before


def test_there_are_many_of_them():
    assert len(HOSTILE) >= 60


def _load(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    return konfig.load(tmp_path / "config.json")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        '{"a":' * 500 + "1" + "}" * 500,
        '{"x": ' + "[" * 500 + "]" * 500 + "}",
        '{"x": ' + '{"__tuple__":[' * 300 + "]}" * 300 + "}",
        '{"x": ' + '{"__op__": "neg", "args": [' * 300 + "1" + "]}" * 300 + "}",
        '{"x": {"__ref__": "' + "a." * 50_000 + 'a"}}',
        '{"x": {"__ref__": "a' + "[" * 5_000 + '"}}',
        '{"x": ' + "1" * 10_000 + "}",
        "",
        "null",
        "[]",
        '"text"',
        '{"a": 1',
        '{"__konfig__": 2, "config": {}}',
        '{"__konfig__": 1, "config": []}',
        '{"__konfig__": 1}',
    ],
    ids=lambda text: f"{text[:24]}... {len(text)}",
)
def test_input_that_is_deep_long_or_no_config_is_refused(tmp_path, text):
    with pytest.raises(ConfigError) as caught:
        konfig.resolve(_load(tmp_path, text))
    assert len(str(caught.value)) < 500


def test_fifty_megabytes_are_refused_unread(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b'{"a": "' + b"a" * 50_000_000 + b'"}')
    with pytest.raises(ConfigError, match="too many for a config"):
        konfig.load(path)
    with pytest.raises(ConfigError, match="is not read"):
        konfig.from_json('{"a": "' + "a" * 50_000_000 + '"}')


def test_a_wide_file_below_the_limit_is_read_in_time_linear_in_its_size(tmp_path):
    document = {f"k{index}": {"__ref__": f"k{index + 1}"} for index in range(20_000)} | {"k20000": 1}
    cfg = _load(tmp_path, json.dumps(document))
    assert cfg.k19990 == 1
    with pytest.raises(ConfigError, match="chain of more than"):
        konfig.resolve(cfg)


def test_files_that_are_not_text_or_not_there_are_refused(tmp_path):
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    for name in ("binary.json", "missing.json", "."):
        with pytest.raises(ConfigError):
            konfig.load(tmp_path / name)


ALLOWED = [
    call("optax:adam", 1e-3, mu_dtype=const("jax.numpy:bfloat16")),
    call("optax:adam", call("optax:cosine_decay_schedule", 1.0, op("mul", 2, 50))),
    call("optax:contrib.muon", 1e-3),
    call("optax:tree_utils.tree_zeros_like", 1.0),
    call("flax.linen:Dense", 3, dtype=const("jax.numpy:float32"), kernel_init=call("flax.linen:initializers.normal")),
    call("flax.linen.linear:Dense", 3),
    const("flax.linen:relu"),
    const("jax:nn.relu"),
    const("jax.nn:gelu"),
    const("jax.lax:Precision.HIGHEST"),
    const("builtins:int"),
    call("operator:or_", const("builtins:int"), None),
    call("functools:partial", const("flax.linen:relu")),
    call("functools:partial", call("functools:partial", const("optax:adam"))),
    call("functools:partial", call("optax:cosine_decay_schedule", 1.0, 5), 3),
    call("jax.sharding:PartitionSpec", "data"),
    call("numpy:array", [1, 2, 3]),
    {"__dtype__": "bfloat16"},
    op("call", ref("text.upper")),
    call("collections_of_ours.part:Thing", 3),
]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A working directory with a package of the user's."""
    folder = tmp_path / "project"
    (folder / "collections_of_ours").mkdir(parents=True)
    (folder / "collections_of_ours" / "part.py").write_text(
        "import os\nfrom os import system\nimport enum\n"
        "class Thing:\n    def __init__(self, x): self.x = x\n    def method(self): pass\n"
        "class Color(enum.Enum):\n    RED = 1\nTHING = Thing(1)\ndef function(): return 5\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.startswith("collections_of_ours")]:
        del sys.modules[name]


@pytest.mark.parametrize("node", ALLOWED, ids=str)
def test_what_experiments_need_is_allowed(project, node):
    konfig.resolve(konfig.from_json(json.dumps({"text": "a", "x": node})))


@pytest.mark.parametrize(
    "name", ["os.system", "system", "THING.method", "os", "__builtins__", "Color.__members__", "Thing.__init__"]
)
def test_a_trusted_module_does_not_vouch_for_what_it_imports(project, name):
    with pytest.raises(konfig.UntrustedError):
        konfig.resolve({"x": const(f"collections_of_ours.part:{name}")}, trusted=False)


def test_modules_of_a_run_directory_are_not_trusted_by_place(project):
    (project / "sweep.json").write_text("{}")
    with pytest.raises(konfig.UntrustedError, match=r"add --trust=collections_of_ours"):
        konfig.resolve({"x": const("collections_of_ours.part:function")}, trusted=False)
    assert "collections_of_ours.part" not in sys.modules
    konfig.trust("collections_of_ours")
    assert konfig.resolve({"x": const("collections_of_ours.part:function")}, trusted=False).x() == 5


def test_a_trial_directory_is_a_run_directory_too(project):
    (project / "config.json").write_text("{}")
    assert konfig.resolve({"x": const("collections_of_ours.part:function")}, trusted=False).x() == 5
    (project / "events").mkdir()
    with pytest.raises(konfig.UntrustedError):
        konfig.resolve({"x": const("collections_of_ours.part:function")}, trusted=False)


def test_libraries_below_the_working_directory_are_not_the_users_own(project, monkeypatch):
    library = project / ".venv" / "lib" / "site-packages"
    library.mkdir(parents=True)
    (library / "a_library_of_others.py").write_text("def function(): return 5\n")
    monkeypatch.syspath_prepend(str(library))
    with pytest.raises(konfig.UntrustedError, match="--trust=a_library_of_others"):
        konfig.resolve({"x": const("a_library_of_others:function")}, trusted=False)
    monkeypatch.chdir("/")
    with pytest.raises(konfig.UntrustedError, match="--trust=this"):
        konfig.resolve({"x": const("this:s")}, trusted=False)
    assert "this" not in sys.modules


def test_the_projects_pyproject_lists_packages(project, tmp_path, monkeypatch):
    library = tmp_path / "elsewhere"
    library.mkdir()
    (library / "a_listed_library.py").write_text("def function(): return 5\n")
    monkeypatch.syspath_prepend(str(library))
    node = {"x": const("a_listed_library:function")}
    with pytest.raises(konfig.UntrustedError):
        konfig.resolve(node, trusted=False)
    (project / "pyproject.toml").write_text('[tool.kdr]\ntrust = ["a_listed_library"]\n')
    assert konfig.resolve(node, trusted=False).x() == 5
    assert "a_listed_library" in konfig.trusted_packages()
    (project / "pyproject.toml").write_text("not toml [")
    with pytest.raises(konfig.UntrustedError):
        konfig.resolve(node, trusted=False)


def test_the_code_copy_of_a_run_needs_to_be_trusted_by_name(tmp_path, monkeypatch):
    code = tmp_path / "run" / "code"
    code.mkdir(parents=True)
    (tmp_path / "run" / "sweep.json").write_text("{}")
    (code / "kdr_config_mine_0123.py").write_text("def function(): return 5\n")
    monkeypatch.syspath_prepend(str(code))
    monkeypatch.chdir(tmp_path)
    node = {"x": const("kdr_config_mine_0123:function")}
    with pytest.raises(konfig.UntrustedError):
        konfig.resolve(node, trusted=False)
    konfig.trust_run(tmp_path / "run")
    assert konfig.resolve(node, trusted=False).x() == 5


def test_trusting_our_own_packages_opens_nothing_in_them():
    konfig.trust("pipelines", "kauldron_core", "ray_cluster")
    for name in ("pipelines.cli:main", "kauldron_core.konfig:trust", "ray_cluster:run"):
        with pytest.raises(konfig.UntrustedError, match="may not use"):
            konfig.resolve({"x": call(name)}, trusted=False)


def test_what_one_process_trusts_another_can_be_told(project, tmp_path, monkeypatch):
    told = konfig.trusted_packages()
    monkeypatch.chdir(tmp_path)
    node = {"x": const("collections_of_ours.part:function")}
    konfig.trust(*told)
    assert konfig.resolve(node, trusted=False).x() == 5


def test_trust_takes_names_and_folders_only():
    for wrong in ("a-b", "../x", "a b", "", "os;"):
        with pytest.raises(ConfigError, match="not the name of a package"):
            konfig.trust(wrong)


HARMLESS_BUT_UNKNOWN = {"__qualname__": "fractions:Fraction", "0": 1}


def test_distrust_stays_with_a_node_through_copy_merge_and_pickle(tmp_path):
    import copy
    import pickle

    loaded = _load(tmp_path, json.dumps({"x": HARMLESS_BUT_UNKNOWN, "plain": {"a": 1}}))
    own = konfig.ConfigDict({"x": {"__qualname__": "fractions:Fraction", "0": 2}})
    assert konfig.resolve(own).x == 2
    carriers = {
        "deepcopy": copy.deepcopy(loaded),
        "copy": copy.copy(loaded),
        "pickle": pickle.loads(pickle.dumps(loaded)),
        "assignment": konfig.ConfigDict({"inner": loaded.x}),
        "in a list": konfig.ConfigDict({"inner": [1, (loaded.x,)]}),
        "or": own | loaded,
        "ror": konfig.ConfigDict({"y": 1}) | loaded,
        "reference copy": konfig.ref_copy(loaded),
        "without references": loaded.copy_and_resolve_references(),
        "a reference": konfig.ConfigDict({"inner": loaded.ref.x}),
    }
    merged = konfig.ConfigDict({"x": {"__qualname__": "optax:adam"}})
    merged.update(loaded)
    carriers["update"] = merged
    for name, cfg in carriers.items():
        with pytest.raises(konfig.UntrustedError):
            konfig.resolve(cfg)
            raise AssertionError(name)
    loaded.x = own.x
    assert konfig.resolve(loaded).x == 2


def test_an_untrusted_enum_is_kept_unread(tmp_path):
    document = {"x": {"__enum__": "uuid:SafeUUID.safe"}}
    cfg = _load(tmp_path, json.dumps(document))
    with pytest.raises(konfig.UntrustedError, match="--trust=uuid"):
        konfig.resolve(cfg)


@pytest.mark.parametrize("name", ["os:system", "subprocess:run", "builtins:exec", "pathlib:Path.unlink"])
def test_nobody_is_told_how_to_trust_what_reaches_the_whole_machine(name):
    """F42: the refusal of `os.system` in a foreign config advised `--trust=os`."""
    with pytest.raises(konfig.UntrustedError, match=r"not trusted: it reaches the whole machine$"):
        konfig.resolve(konfig.from_json(json.dumps({"x": call(name, "true")})))


@pytest.mark.process
def test_loading_and_refusing_imports_nothing(tmp_path):
    document = {"x": call("flax.io:rmtree", "/nowhere"), "y": call("optax:adam")}
    (tmp_path / "config.json").write_text(json.dumps(document))
    code = (
        "import sys; from kauldron_core import konfig\n"
        "try: konfig.resolve(konfig.load('config.json'))\n"
        "except konfig.UntrustedError as error: print(error)\n"
        "print(sorted({'jax', 'numpy', 'optax', 'flax', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [
        "cfg.x: the config file uses 'flax.io.rmtree', which is not trusted; if you know that it is harmless, "
        "add --trust=flax, in Python konfig.trust('flax')",
        "[]",
    ], done.stderr


def test_a_sweep_learns_before_it_starts_what_its_actors_could_not_load():
    konfig.check_loadable(konfig.ConfigDict({"x": call("optax:adam", 1e-3), "y": const("jax.nn:relu")}))
    with pytest.raises(konfig.UntrustedError, match=r"cfg\.x\[1\]: .*--trust=fractions"):
        konfig.check_loadable(konfig.ConfigDict({"x": [1, HARMLESS_BUT_UNKNOWN]}))
    with pytest.raises(ConfigError, match=r"cfg\.x: __main__\.f is known to this process only; move it into a module"):
        konfig.check_loadable(konfig.ConfigDict({"x": const("__main__:f")}))
    with pytest.raises(ConfigError, match=r"cfg\.x: cannot be saved"):
        konfig.check_loadable(konfig.ConfigDict({"x": lambda: 1}))
    konfig.trust("fractions")
    konfig.check_loadable(konfig.ConfigDict({"x": HARMLESS_BUT_UNKNOWN}))


NAMES = [
    "os:system",
    "optax:sgd",
    "builtins:dict",
    "builtins:list",
    "pathlib:Path",
    "jax.numpy:pi",
    "x",
    "",
    "a:b",
    ":",
]
WORDS = st.sampled_from([*NAMES, "a", "a.b", "a[0]", "x.y.z", *operations.ALL, "int8", "float32", "__raw__=1"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 10**6) | st.floats() | WORDS | st.text(max_size=4)
MARKERS = st.sampled_from(
    [
        *sorted(marked.MARKED),
        "__qualname__",
        "__const__",
        "__id__",
        "args",
        "kwargs",
        "value",
        "required",
        "0",
        "a",
        "x",
    ]
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(MARKERS | st.text(max_size=3), inner, max_size=4),
    max_leaves=25,
)


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(MARKERS, DOCUMENTS, max_size=4))
def test_whatever_a_file_says_it_is_a_config_or_a_config_error(document):
    try:
        cfg = konfig.from_json(json.dumps(document))
    except ConfigError as error:
        assert len(str(error)) < 1000
        return
    text = konfig.to_json(cfg)
    assert konfig.to_json(konfig.from_json(text)) == text
    repr(cfg)
    try:
        konfig.resolve(cfg)
    except ConfigError as error:
        assert "\n" not in str(error)
    except (TypeError, ValueError) as error:  # What a call of a trusted name says about its arguments.
        assert error.__notes__


def test_the_code_copy_of_a_run_is_trusted_by_its_own_flag():
    cfg = konfig.from_json('{"__qualname__": "kdr_config_mine_0123456789ab:Loss"}')
    with pytest.raises(ConfigError, match=r"add --trust-run, in Python konfig.trust_run"):
        konfig.resolve(cfg, trusted=False)
