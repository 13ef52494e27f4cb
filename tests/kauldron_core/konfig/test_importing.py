"""Imports inside the block give proxies, for that block alone; calls of proxies describe instead of run."""

import builtins
import copy
import pickle
import subprocess
import sys
import threading
import types

import pytest

from kauldron_core import konfig
from kauldron_core.errors import ConfigError
from tests.kauldron_core.konfig.sample import CALLS, Layer

NAME = "tests.kauldron_core.konfig.sample"


def qualname(value):
    node = konfig.ConfigDict({"x": value}).x
    return node.get("__qualname__") or node.get("__const__")


def test_a_call_is_described_and_not_made():
    with konfig.imports():
        from tests.kauldron_core.konfig import sample
    CALLS.clear()
    node = sample.record("a", key=1)
    assert CALLS == []
    assert node.to_dict() == {"__qualname__": f"{NAME}:record", "0": "a", "key": 1}


def test_every_form_of_import():
    with konfig.imports():
        import os.path

        import tests.kauldron_core.konfig.sample
        import tests.kauldron_core.konfig.sample as aliased
        from tests.kauldron_core import konfig as folder
        from tests.kauldron_core.konfig import sample
        from tests.kauldron_core.konfig.sample import Layer as ProxyLayer
        from tests.kauldron_core.konfig.sample import load
    assert qualname(tests.kauldron_core.konfig.sample.Layer) == f"{NAME}:Layer"
    assert qualname(aliased.Layer) == qualname(sample.Layer) == qualname(folder.sample.Layer) == f"{NAME}:Layer"
    assert qualname(ProxyLayer) == f"{NAME}:Layer" and qualname(load) == f"{NAME}:load"
    assert qualname(sample.Layer.Nested) == f"{NAME}:Layer.Nested"
    assert qualname(os.path.join) == "os.path:join"
    assert qualname(sample) == "tests.kauldron_core.konfig:sample"


def test_aliases_of_modules_are_shown():
    with konfig.imports():
        import flax.linen
        import jax
        import jax.numpy as jnp
        import numpy as np
        from flax import linen as nn
    assert qualname(jax.numpy.float32) == qualname(jnp.float32) == "jax.numpy:float32"
    assert repr(konfig.ConfigDict({"a": nn.Dense(3), "b": np.float32, "c": flax.linen.relu})) == (
        "<ConfigDict[{'a': nn.Dense(3), 'b': np.float32, 'c': nn.relu}]>"
    )
    assert repr(nn.Dense) == "<konfig name nn.Dense>" and repr(nn) == "<konfig module nn>"


def test_a_module_that_another_shows_keeps_the_path_that_was_written():
    # `kd.train` is another module than its path says, so the path is kept as it was written.
    shown = types.ModuleType("a_namespace_for_this_test")
    shown.inner = sys.modules[NAME]
    sys.modules[shown.__name__] = shown
    try:
        with konfig.imports():
            import a_namespace_for_this_test as ns
        assert qualname(ns.inner.Layer) == "a_namespace_for_this_test:inner.Layer"
        assert konfig.resolve(ns.inner.Layer(1)) == Layer(1)
    finally:
        del sys.modules[shown.__name__]


def test_only_the_block_sees_proxies():
    with konfig.imports():
        import colorsys as described
        import json as also_described
    import colorsys

    assert isinstance(colorsys, types.ModuleType) and not isinstance(described, types.ModuleType)
    assert repr(also_described.loads) == "<konfig name json.loads>"
    assert builtins.__import__ is importer


importer = builtins.__import__


def test_modules_imported_by_the_block_import_for_real(tmp_path, monkeypatch):
    (tmp_path / "outer_of_two.py").write_text("import inner_of_two\nVALUE = inner_of_two.VALUE + 1\n")
    (tmp_path / "inner_of_two.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with konfig.imports():
        import outer_of_two  # noqa: F401
    assert sys.modules["outer_of_two"].VALUE == 2


def test_a_missing_module_mentions_lazy_and_a_missing_name_the_closest():
    with pytest.raises(ImportError) as caught, konfig.imports():
        import there_is_no_such_module  # noqa: F401
    assert "lazy=True" in caught.value.__notes__[0]
    assert builtins.__import__ is importer
    with konfig.imports():
        from tests.kauldron_core.konfig import sample
    with pytest.raises(AttributeError, match=r"unknown name 'Layr'\. Did you mean 'Layer'\?"):
        _ = sample.Layr
    assert not hasattr(sample, "nothing") and hasattr(sample, "Layer")
    with pytest.raises(AttributeError, match=r"sample\.Layer: unknown name 'doubld'\. Did you mean 'doubled'"):
        _ = sample.Layer.doubld


def test_lazy_imports_leave_modules_alone():
    with konfig.imports(lazy=True):
        import there_is_no_such_module.below as below
        from there_is_no_such_module import name, other

        import __main__ as main
    assert qualname(below.a.b) == "there_is_no_such_module.below:a.b"
    assert qualname(name) == "there_is_no_such_module:name" and qualname(other(1)) == "there_is_no_such_module:other"
    assert qualname(main.function) == "__main__:function"
    with pytest.raises(ConfigError, match=r"cfg\.x: there is no module 'there_is_no_such_module'"):
        konfig.resolve(konfig.ConfigDict({"x": name}))


def test_some_modules_can_be_made_lazy_from_outside():
    def block():
        with konfig.imports():
            import there_is_no_such_module.below as below
        return below

    with pytest.raises(ImportError):
        block()
    with konfig.set_lazy_imported_modules(["there_is_no_such_module"]):
        assert qualname(block().x) == "there_is_no_such_module.below:x"
        with konfig.set_lazy_imported_modules(["something_else"]), pytest.raises(ImportError):
            block()  # The innermost rules count.
        with konfig.set_lazy_imported_modules(except_=["there_is_no_such_module.below"]), pytest.raises(ImportError):
            block()
    with konfig.set_lazy_imported_modules():
        block()
    with konfig.set_lazy_imported_modules(["there_is_no"]), pytest.raises(ImportError):
        block()  # Names are matched by whole parts.


def test_imports_that_name_nothing_are_refused():
    for statement in ("from . import x", "from .a import b", "from os import *"):
        code = compile(f"with konfig.imports():\n    {statement}\n", "a_config.py", "exec")
        with pytest.raises(ConfigError, match="a config names"):
            exec(code, {"konfig": konfig, "__name__": "a_package.a_config", "__package__": "a_package"})
    assert builtins.__import__ is importer


def test_what_a_proxy_cannot_do():
    with konfig.imports():
        from tests.kauldron_core.konfig import sample
    with pytest.raises(ConfigError, match="is a module and cannot be called"):
        sample()
    with pytest.raises(ConfigError, match="only describes the class"):

        class Derived(sample.Layer):
            pass

    with pytest.raises(ConfigError, match="cannot be set"):
        sample.x = 1


def test_proxies_are_equal_by_name_and_can_be_copied():
    with konfig.imports():
        from tests.kauldron_core.konfig import sample
    assert sample.Layer == sample.Layer and sample.Layer != sample.load and len({sample.Layer, sample.Layer}) == 1
    assert pickle.loads(pickle.dumps(sample.Layer)) == copy.deepcopy(sample.Layer) == sample.Layer


def test_blocks_of_two_threads_do_not_meet():
    inside, outside = threading.Event(), threading.Event()
    found = {}

    def other():
        inside.wait(10)
        import wave  # The same module as the block's, another thread.

        found["other"] = wave
        outside.set()

    thread = threading.Thread(target=other)
    thread.start()
    with konfig.imports():
        inside.set()
        assert outside.wait(10)
        import wave
    thread.join()
    assert isinstance(found["other"], types.ModuleType) and not isinstance(wave, types.ModuleType)
    assert builtins.__import__ is importer


def test_mock_modules_in_a_function():
    import tests.kauldron_core.konfig.sample as sample

    def inner():
        import tests.kauldron_core.konfig.sample as own

        before = own.Layer(1)
        with konfig.mock_modules():
            described = own.Layer(2)
            assert konfig.ConfigDict  # konfig itself stays.
        return before, described, own.Layer(3)

    before, described, after = inner()
    assert before == Layer(1) and after == Layer(3)
    assert isinstance(described, konfig.ConfigDict) and konfig.resolve(described) == Layer(2)
    with konfig.mock_modules():
        node = sample.Layer(4)
    assert isinstance(node, konfig.ConfigDict) and sample.Layer(5) == Layer(5)


def test_mock_modules_in_a_module_and_after_an_error():
    variables = {"konfig": konfig, "sample": sys.modules[NAME], "__name__": "a_notebook"}
    code = "with konfig.mock_modules():\n    node = sample.Layer(1)\n    inner = sample\n    %s\nreal = sample.Layer(2)"
    exec(code % "pass", variables)
    assert isinstance(variables["node"], konfig.ConfigDict) and variables["real"] == Layer(2)
    variables = {"konfig": konfig, "sample": sys.modules[NAME], "__name__": "a_notebook"}
    with pytest.raises(ZeroDivisionError):
        exec(code % "1 / 0", variables)
    assert variables["sample"] is sys.modules[NAME]


@pytest.mark.process
def test_importing_konfig_loads_neither_jax_nor_numpy():
    code = (
        "import sys, json\nfrom kauldron_core import konfig\n"
        'cfg = konfig.from_json(\'{"a": {"__qualname__": "optax:adam", "0": 0.1}}\')\n'
        "cfg.a[0] = 0.2\nkonfig.to_json(cfg); konfig.fingerprint(cfg); repr(cfg); konfig.flatten(cfg)\n"
        "print([name for name in ('jax', 'numpy', 'flax', 'optax', 'ray', 'mlflow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_module_that_breaks_says_what_it_lacks(tmp_path, monkeypatch):
    (tmp_path / "outer_package").mkdir()
    (tmp_path / "outer_package" / "__init__.py").touch()
    (tmp_path / "outer_package" / "inner.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"), konfig.imports():
        from outer_package import inner  # noqa: F401
