"""The copies of config files that a run keeps: what of `RUN/code` can be imported, and when."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pathlib
import py_compile
import subprocess
import sys

import pytest

from kauldron_core import konfig
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.trusting import code_copies
from kauldron_core.sweeps import config_import

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A run with the copy of one config file; this process knows its folder and trusts nothing of it."""
    monkeypatch.setattr(code_copies, "_folders", {})
    (tmp_path / "RUN" / "code").mkdir(parents=True)
    (tmp_path / "RUN" / "sweep.json").write_text("{}")
    code_copies.add_code_folder(tmp_path / "RUN" / "code")
    return tmp_path / "RUN"


def copy(run: pathlib.Path, name: str, text: str) -> str:
    """Puts a copy of a config file into the run and returns its module name."""
    file = run.parent / f"{name}.py"
    file.write_text(text)
    stable = config_import.stable_name(file)
    (run / "code" / f"{stable}.py").write_text(text)
    return stable


def test_a_copy_is_imported_once_the_run_is_trusted(run: pathlib.Path) -> None:
    name = copy(run, "mine", "x = 5\n")
    assert importlib.util.find_spec(name) is None
    konfig.trust_run(run)
    assert importlib.import_module(name).x == 5
    assert str(run / "code") not in sys.path


def test_nothing_else_of_the_folder_is_found(run: pathlib.Path) -> None:
    """F44: a module in RUN/code that is named as one of a library, or as one of Python's start-up, is not there."""
    for name in ("sitecustomize", "usercustomize", "fractions", "kdr_canary"):
        (run / "code" / f"{name}.py").write_text("raise AssertionError('executed')\n")
    konfig.trust_run(run)
    assert not {"sitecustomize", "fractions", "kdr_canary"} & set(konfig.trusted_packages())
    assert importlib.util.find_spec("kdr_canary") is None
    assert str(run) not in str(importlib.util.find_spec("fractions"))


def test_a_copy_that_was_changed_is_refused(run: pathlib.Path) -> None:
    """F44: the name of a copy stands for its content, so a name that is trusted brings no other code in."""
    name = copy(run, "changed", "x = 5\n")
    (run / "code" / f"{name}.py").write_text("x = 6\n")
    konfig.trust_run(run)
    with pytest.raises(ImportError, match="was changed after it was copied"):
        importlib.import_module(name)


def test_a_compiled_form_beside_a_copy_is_not_read(run: pathlib.Path) -> None:
    """F44: a .pyc whose time and size fit is what Python would run instead of the source."""
    name = copy(run, "compiled", "x = 5\n")
    source = run / "code" / f"{name}.py"
    other = run.parent / "other.py"
    other.write_text("x = 6\n")
    os.utime(other, ns=(source.stat().st_mtime_ns,) * 2)
    target = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(other), cfile=target, dfile=str(source))
    konfig.trust_run(run)
    assert importlib.import_module(name).x == 5


def test_a_link_in_the_folder_is_not_a_copy(run: pathlib.Path) -> None:
    """F44, F47: what a link in RUN/code leads to is not the run's; written over, the link goes and its target stays."""
    outside = run.parent / "precious.py"
    outside.write_text("x = 5\n")
    name = config_import.stable_name(outside)
    (run / "code" / f"{name}.py").symlink_to(outside)
    konfig.trust_run(run)
    assert importlib.util.find_spec(name) is None
    file = config_import.ImportedFile(sys, outside, is_copied=True)
    copied = file.copy_to(run / "code")
    copied.unlink()
    copied.symlink_to(run.parent / "nowhere")
    file.copy_to(run / "code")
    assert not copied.is_symlink()
    assert not (run.parent / "nowhere").exists()


@pytest.mark.process
def test_data_workers_get_what_a_copy_defines(run: pathlib.Path) -> None:
    """F44: worker processes of the data are sent the code of a copy, which no path leads them to."""
    name = copy(
        run,
        "own_data",
        "import dataclasses\n"
        "from kauldron_core import kd\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class Own(kd.data.MapTransform):\n"
        "    def map(self, element):\n"
        "        return {**element, 'y': element['x'] + 1}\n",
    )
    script = (
        "from kauldron_core import data, konfig\n"
        "import importlib\n"
        "if __name__ == '__main__':\n"
        f"    konfig.trust_run({str(run)!r})\n"
        f"    own = importlib.import_module({name!r}).Own()\n"
        "    ds = data.py.DataSource([{'x': 1}] * 4, batch_size=4, num_workers=1, transforms=[own], num_epochs=1)\n"
        "    iterator = iter(ds)\n"
        "    print([batch['y'].tolist() for batch in iterator])\n"
        "    iterator.close()\n"
    )
    file = run.parent / "script.py"
    file.write_text(script)
    done = subprocess.run(
        [sys.executable, file], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.stdout == "[[2, 2, 2, 2]]\n", done.stderr


def test_trust_in_a_name_is_no_trust_in_the_rest(run: pathlib.Path) -> None:
    name, other = copy(run, "one", "x = 1\n"), copy(run, "two", "x = 2\n")
    konfig.trust(name)
    assert importlib.import_module(name).x == 1
    with pytest.raises(ConfigError, match="add --trust-run"):
        konfig.resolve({"x": {"__const__": f"{other}:x"}}, trusted=False)
