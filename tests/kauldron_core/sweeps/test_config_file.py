"""Config files: found, imported under a name that lasts, called with typed arguments, and asked for sweeps."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kauldron_core import konfig, sweeps
from kauldron_core.errors import ConfigError
from kauldron_core.sweeps import config_import

SOURCE = """
import math
from kauldron_core import konfig

with konfig.imports():
    import optax

DEPTHS = {"small": 1, "large": 4}


def helper():
    return 1


def get_config(size: str = "small", depth: int | None = None, scale=1.0, *, debug: bool = False):
    cfg = konfig.ConfigDict({"size": size, "depth": depth or DEPTHS[size], "scale": scale, "debug": debug, "f": None})
    cfg.optimizer = optax.adam(learning_rate=1e-3)
    return cfg


def sweep():
    for depth in (1, 2):
        yield {"depth": depth}


def sweep_rate():
    return [{"cfg.optimizer.learning_rate": rate} for rate in (0.1, 0.2)]


def sweep_bad():
    yield 5


def sweep_none():
    return []
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "experiment.py").write_text(SOURCE)
    yield tmp_path
    base = str(tmp_path.parent)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(base):
            del sys.modules[name]


def refused(path: str, **args: str) -> str:
    with pytest.raises(ConfigError) as caught:
        sweeps.load_config_file(path, args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_config_file(folder: Path) -> None:
    file = sweeps.load_config_file("experiment.py")
    assert (file.name, file.path) == ("experiment", Path("experiment.py"))
    assert file.config.to_dict() | {"optimizer": None} == {
        "size": "small",
        "depth": 1,
        "scale": 1.0,
        "debug": False,
        "f": None,
        "optimizer": None,
    }
    assert file.module is not None
    assert file.module.__name__ == "experiment"
    assert file.imported is not None
    assert not file.imported.is_copied


def test_arguments_are_typed_by_annotation_or_default(folder: Path) -> None:
    cfg = sweeps.load_config_file("experiment.py:size=large,depth=7", {"scale": "2", "debug": "True"}).config
    assert (cfg.size, cfg.depth, cfg.scale, cfg.debug) == ("large", 7, 2.0, True)
    assert sweeps.load_config_file("experiment.py:depth=None").config.depth == 1
    assert "expected int | None, got the text 'x'" in refused("experiment.py:depth=x")
    assert "Write: --args.debug=True" in refused("experiment.py", debug="yes")
    assert "Did you mean 'size'? Available: size, depth, scale, debug." in refused("experiment.py:siez=large")
    assert "gives this argument too" in refused("experiment.py:size=large", size="small")
    assert "given twice" in refused("experiment.py:size=a,size=b")
    assert "'large' is not NAME=VALUE" in refused("experiment.py:large")
    assert "in get_config(): KeyError: 'huge'" in refused("experiment.py:size=huge")


def test_required_arguments_and_those_of_any_name(folder: Path) -> None:
    (folder / "needs.py").write_text("def get_config(size: int):\n    return {'size': size}\n")
    assert "get_config needs this argument. Write: --args.size=VALUE" in refused("needs.py")
    assert sweeps.load_config_file("needs.py:size=3").config.size == 3
    (folder / "loose.py").write_text("def get_config(**options):\n    return dict(options)\n")
    assert sweeps.load_config_file("loose.py:a=1,b=[1, 2]").config.to_dict() == {"a": 1, "b": [1, 2]}


def test_files_that_are_not_there(folder: Path) -> None:
    assert "Did you mean 'experiment.py'?" in refused("experimnt.py")
    assert "Write: experiment.py" in refused("experiment")
    assert "this is a folder" in refused(".")
    (folder / "notes.txt").write_text("")
    assert "a .py or .json file" in refused("notes.txt")
    (folder / "configs").mkdir()
    (folder / "configs" / "a.py").write_text(SOURCE)
    assert "Write: configs/a.py" in refused("configs.a")
    assert "Available: configs/a.py" in refused("configs/b.py")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n", "a config file defines get_config()"),
        ("def get_confg():\n    pass\n", "Did you mean 'get_confg'?"),
        ("def get_config():\n    return 5\n", "returned a int, not a config"),
        ("def get_config():\n    pass\n", "returned a NoneType"),
        ("import no_such_module\n", "broken.py:1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def get_config(:\n", "broken.py:1: invalid syntax"),
        ("\n\nraise ValueError('two\\nlines')\n", "broken.py:3: ValueError: two\\nlines"),
        ("def get_config():\n    x = 1\n    return undefined\n", "broken.py:3: in get_config(): NameError"),
    ],
)
def test_broken_files_name_the_line(folder: Path, source: str, message: str) -> None:
    (folder / "broken.py").write_text(source)
    assert message in refused("broken.py")


def test_a_typo_in_the_file_names_the_line(folder: Path) -> None:
    (folder / "broken.py").write_text(
        "from kauldron_core import konfig\nwith konfig.imports():\n    import optax\n\n"
        "def get_config():\n    return optax.adam(learning_rat=1)\n"
    )
    message = refused("broken.py")
    assert message.startswith("broken.py:6: in get_config(): ")
    assert "Did you mean 'learning_rate'?" in message


def test_a_file_below_the_working_directory_has_its_dotted_name(folder: Path) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "one.py").write_text(SOURCE)
    file = sweeps.load_config_file("deep/er/one.py")
    assert file.module is sys.modules["deep.er.one"]
    assert sweeps.load_config_file(str(folder / "deep" / "er" / "one.py")).module is file.module


def test_a_file_of_a_package_on_the_path_has_that_name_wherever_one_starts(folder: Path) -> None:
    """F09: from a folder above the project the same file had another name, which no other place could import."""
    package = folder / "deep" / "installed" / "own_installed"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "flat.py").write_text(SOURCE)
    sys.path.append(str(package.parent.resolve()))
    assert sweeps.load_config_file("deep/installed/own_installed/flat.py").module is sys.modules["own_installed.flat"]


def test_a_name_that_would_import_something_else_is_not_used(folder: Path) -> None:
    (folder / "random.py").write_text(SOURCE)
    (folder / "my-config.py").write_text(SOURCE)
    for name in ("random.py", "my-config.py"):
        file = sweeps.load_config_file(name)
        assert file.imported is not None
        assert file.imported.is_copied
        assert file.module is not None
        assert file.module.__name__.startswith("kdr_config_")
    import random

    assert hasattr(random, "Random")


def test_a_copied_file_has_the_same_name_everywhere_and_later(folder: Path, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("elsewhere") / "exp.py"
    outside.write_text(SOURCE.replace("def helper", "def loader"))
    file = sweeps.load_config_file(str(outside))
    assert file.imported is not None
    assert file.module is not None
    name = file.module.__name__
    assert name == config_import.stable_name(outside)
    copy = file.imported.copy_to(folder / "RUN" / "code")
    assert copy.read_bytes() == outside.read_bytes()
    outside.unlink()
    del sys.modules[name]
    konfig.trust_run(folder / "RUN")
    assert importlib.import_module(name).loader() == 1
    other = folder / "other-place" / "exp.py"
    other.parent.mkdir()
    other.write_bytes(copy.read_bytes())
    assert config_import.stable_name(other) == name


def test_a_copied_file_cannot_import_its_neighbours(folder: Path, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("elsewhere")
    (outside / "base.py").write_text("x = 1\n")
    (outside / "exp.py").write_text("import base\n")
    assert f"start in {outside} instead" in refused(str(outside / "exp.py"))


def test_sweep_functions(folder: Path) -> None:
    file = sweeps.load_config_file("experiment.py")
    axes = [file.sweep(), file.sweep("rate"), *sweeps.from_strings(file.config, ["scale=[1, 2]"])]
    trials = sweeps.expand(file.config, axes)
    assert len(trials) == 8
    assert dict(trials[0].overrides) == {"depth": 1, "optimizer.learning_rate": 0.1, "scale": 1.0}
    for name, message in (
        ("rat", "Did you mean 'rate'?"),
        ("bad", "item 0 of sweep_bad() is a int, not a dict of overrides"),
        ("none", "sweep_none() yields nothing"),
    ):
        with pytest.raises(ConfigError) as caught:
            file.sweep(name)
        assert message in str(caught.value)
    with pytest.raises(ConfigError, match="unknown key 'depht'"):
        sweeps.expand(file.config, sweeps.from_points([{"depht": 1}]))


def test_json_files(folder: Path) -> None:
    file = sweeps.load_config_file("experiment.py")
    konfig.save(file.config, folder / "saved.json")
    loaded = sweeps.load_config_file("saved.json")
    assert loaded.config == file.config
    assert loaded.module is None
    konfig.apply_overrides(loaded.config, ["optimizer.learning_rate=1"], aliases=loaded.aliases)
    assert loaded.config.optimizer.learning_rate == 1.0
    assert "takes no arguments" in refused("saved.json", size="large")
    assert "takes no arguments" in refused("saved.json:size=large")
    with pytest.raises(ConfigError, match="no sweep functions"):
        loaded.sweep()


def test_names_of_the_file_can_be_used_in_overrides(folder: Path) -> None:
    file = sweeps.load_config_file("experiment.py")
    konfig.apply_overrides(file.config, ["f=experiment.helper"], aliases=file.aliases)
    assert konfig.resolve(file.config.f)() == 1
    file = sweeps.load_config_file("experiment.py")
    konfig.apply_overrides(file.config, ["f=math.pi"], aliases=file.aliases)
    assert file.config.f > 3
    file = sweeps.load_config_file("experiment.py")
    with pytest.raises(ConfigError, match=r"Write: '--cfg\.f=experiment\.helper\(\)'"):
        konfig.apply_overrides(file.config, ["f=helper()"], aliases=file.aliases)


def test_lazy_imports_can_be_named_without_being_imported(folder: Path) -> None:
    (folder / "lazy.py").write_text(
        "from kauldron_core import konfig\nwith konfig.imports(lazy=True):\n    import not_here\n\n"
        "def get_config():\n    return {'a': not_here.Thing(1), 'b': None}\n"
    )
    file = sweeps.load_config_file("lazy.py")
    konfig.apply_overrides(file.config, ["a=not_here.Other(x=2)", "b=not_here.CONSTANT"], aliases=file.aliases)
    assert file.config.a["__qualname__"] == "not_here:Other"
    assert file.config.b["__const__"] == "not_here:CONSTANT"


def test_a_file_of_trials(folder: Path) -> None:
    file = sweeps.load_config_file("experiment.py")
    trials = folder / "trials.txt"
    trials.write_text(
        "# the ones that worked\n\n"
        "optimizer.learning_rate=0.1 size='a b'\n"
        "--cfg.optimizer=optax.sgd(0.1) optimizer.momentum=0.9\n"
        '{"cfg.depth": 3, "size": "x"}\n'
    )
    points = sweeps.read_trials(trials, file.config, aliases=file.aliases)
    found = sweeps.expand(file.config, [points])
    assert dict(found[0].overrides) == {"optimizer.learning_rate": 0.1, "size": "a b"}
    assert found[1].config(file.config).optimizer.momentum == 0.9
    assert dict(found[2].overrides) == {"depth": 3, "size": "x"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("size", "trials.txt:2: --cfg.size: an override is PATH=VALUE"),
        ("depht=3", "trials.txt:2: --cfg.depht: unknown key 'depht'. Did you mean 'depth'?"),
        ("depth=x", "trials.txt:2: --cfg.depth: expected int"),
        ("size='a", 'trials.txt:2: "size=\'a" cannot be split into words'),
        ("{", "trials.txt:2: this line is not JSON"),
        ("depth=1 depth=2", "trials.txt:2: --cfg.depth=2: it would undo"),
    ],
)
def test_faults_in_a_file_of_trials_name_the_line(folder: Path, line: str, message: str) -> None:
    file = sweeps.load_config_file("experiment.py")
    (folder / "trials.txt").write_text(f"depth=1\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        sweeps.read_trials("trials.txt", file.config)
    assert message in str(caught.value)


def test_a_file_of_trials_that_says_nothing(folder: Path) -> None:
    (folder / "trials.txt").write_text("# nothing\n")
    cfg = konfig.ConfigDict({"x": 1})
    with pytest.raises(ConfigError, match="there is no trial in this file"):
        sweeps.read_trials("trials.txt", cfg)
    with pytest.raises(ConfigError, match="cannot be read"):
        sweeps.read_trials("none.txt", cfg)


@pytest.mark.process
def test_a_json_config_is_overridden_and_swept_without_jax_and_numpy(folder: Path) -> None:
    (folder / "saved.json").write_text('{"optimizer": {"__qualname__": "optax:adam", "learning_rate": 0.1}}')
    code = (
        "import sys\n"
        "from kauldron_core import konfig, sweeps\n"
        "file = sweeps.load_config_file('saved.json')\n"
        "konfig.apply_overrides(file.config, ['optimizer.learning_rate=1'], aliases=file.aliases)\n"
        "axes = sweeps.from_strings(file.config, ['optimizer.learning_rate=logspace(1e-3, 1, 4)'])\n"
        "assert len(sweeps.expand(file.config, axes)) == 4\n"
        "print(sorted({'jax', 'numpy', 'optax'} & set(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "[]\n", done.stderr
