"""Imports the copies of config files that a run keeps in `RUN/code`, and nothing else that lies there.

Not by `sys.path`: a folder of a run on it would offer its `sitecustomize.py`, or a module that is named like a
library, to everything that is imported. What is found here is a module with the name of a copy, which this process
trusts by that name, whose content is the one that the name was made from; compiled forms beside it are not read. And
it is looked for last.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.trusting import project_trust
from kauldron_core.konfig.trusting import rules as trusting
from kauldron_core.rundir.atomic import make_folder, write_atomic

_NAME = re.compile(rf"{trusting.COPY_PREFIX}\w+_([0-9a-f]{{12}})")
_folders: dict[Path, None] = {}


def trust_run(run: str | os.PathLike[str]) -> None:
    """Trusts the copies of config files that a run directory holds (`--trust-run`), which are imported from there."""
    trusting.trust(*project_trust.code_of_run(run))
    add_code_folder(Path(run, "code"))


def digest_of(content: bytes) -> str:
    """Returns what the name of a copy ends with."""
    return hashlib.sha256(content).hexdigest()[:12]


def add_code_folder(folder: str | os.PathLike[str]) -> None:
    """Makes the copies in a run's `code` folder importable in this process, those that it trusts."""
    _folders[Path(folder).resolve()] = None
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
    importlib.invalidate_caches()


def imported_copies() -> list[ModuleType]:
    """Returns the copies that this process has imported."""
    return [module for name, module in list(sys.modules.items()) if _NAME.fullmatch(name)]


def copy_code(text: str, folder: str | os.PathLike[str]) -> None:
    """Writes into a `code` folder what this process has imported of the copies that a config, as text, names.

    Raises:
      ConfigError: If a file has changed since it was imported.
    """
    for module in imported_copies():
        target = Path(folder, f"{module.__name__}.py")
        if module.__name__ not in text or module.__file__ is None or target.is_file():
            continue
        content = Path(module.__file__).read_bytes()
        if not module.__name__.endswith(digest_of(content)):
            raise ConfigError(f"{module.__file__}: was changed after it was read. Repeat the command.")
        make_folder(target.parent)
        write_atomic(target, content)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if _NAME.fullmatch(fullname) is None or not trusting.is_trusted_by_name(fullname):
            return None
        for folder in _folders:
            file = folder / f"{fullname}.py"
            if file.is_file() and not file.is_symlink():
                return spec_from_file_location(fullname, file, loader=_Loader(fullname, str(file)))
        return None


class _Loader(SourceFileLoader):
    """Reads the source, never a compiled form, which could be that of another source."""

    def get_code(self, fullname: str) -> CodeType:
        content = self.get_data(self.path)
        if not fullname.endswith(digest_of(content)):
            raise ImportError(f"{self.path} was changed after it was copied: its name is made from its content")
        return self.source_to_code(content, self.path)


_finder = _Finder()
