"""Imports a config file under a name that means the same in every process, months later too."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.trusting.code_copies import digest_of
from kauldron_core.konfig.trusting.project_path import add_project
from kauldron_core.konfig.trusting.rules import COPY_PREFIX
from kauldron_core.rundir.atomic import make_folder, write_atomic
from kauldron_core.sweeps.user_code import call_user


@dataclass(frozen=True)
class ImportedFile:
    """A config file as a module.

    Attributes:
      module: The module.
      file: Where the file lies.
      is_copied: Whether other processes can import it only from a copy (`copy_to`); otherwise its dotted name does,
        counted from where its package is installed, or else from the working directory.
    """

    module: ModuleType
    file: Path
    is_copied: bool

    def copy_to(self, folder: str | Path) -> Path:
        """Writes the file under its module name into `folder` (`RUN/code`), from where it can be imported."""
        target = Path(folder) / f"{self.module.__name__}.py"
        make_folder(target.parent)
        write_atomic(target, self.file.read_bytes())  # A link that lies there is replaced, not followed.
        return target


def import_file(file: Path, *, root: Path | None = None) -> ImportedFile:
    """Imports a Python file.

    Raises:
      ConfigError: When it fails, with the line.
    """
    shown, file = file, file.resolve()
    add_project(root)
    root = (root or Path.cwd()).resolve()
    name = _installed_name(file) or dotted_name(file, root)
    if name is not None:
        return ImportedFile(call_user(lambda: importlib.import_module(name), shown), file, is_copied=False)
    stable = stable_name(file)
    try:
        return ImportedFile(call_user(lambda: _import_as(stable, file), shown), file, is_copied=True)
    except ConfigError as error:
        raise _with_hint(error, file) from error.__cause__


def dotted_name(file: Path, root: Path) -> str | None:
    """Returns the module name of a file below `root`, or None when that name would import something else."""
    if not file.is_relative_to(root):
        return None
    parts = file.relative_to(root).with_suffix("").parts
    if not all(part.isidentifier() for part in parts):
        return None
    name = ".".join(parts)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    is_same = spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file
    return name if is_same else None


def _installed_name(file: Path) -> str | None:
    """Returns the name of a file in a package that is on the path wherever one starts; None of any other file."""
    top = next(folder for folder in file.parents if not (folder / "__init__.py").is_file())
    return dotted_name(file, top) if top != file.parent else None


def stable_name(file: Path) -> str:
    """Returns a module name that follows from the file's name and content alone."""
    return f"{COPY_PREFIX}{re.sub(r'[^0-9a-zA-Z]+', '_', file.stem)}_{digest_of(file.read_bytes())}"


def _with_hint(error: ConfigError, file: Path) -> ConfigError:
    """Returns the error with what to do when the file imports one that lies beside it."""
    cause = error.__cause__
    name = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
    if not name or not ((file.parent / f"{name}.py").is_file() or (file.parent / name).is_dir()):
        return error
    hint = f"The file lies outside of the working directory and is copied alone; start in {file.parent} instead."
    return ConfigError(f"{error}. {hint}")


def _import_as(name: str, file: Path) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module
