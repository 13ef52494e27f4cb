"""Loads the config that a command line names: a Python file with `get_config`, or a JSON file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from kauldron_core import rundir
from kauldron_core.errors import ConfigError, closest, listing, shown, unknown_name
from kauldron_core.konfig.calls.signatures import ANYTHING, signature_of
from kauldron_core.konfig.overrides.names import Aliases, Names
from kauldron_core.konfig.overrides.refusal import refusal
from kauldron_core.konfig.overrides.slots import Slot
from kauldron_core.konfig.overrides.splitting import partition_outside, split_items
from kauldron_core.konfig.overrides.values import read_value
from kauldron_core.konfig.tree.references import Node
from kauldron_core.konfig.writing.config_dict import ConfigDict
from kauldron_core.konfig.writing.files import load
from kauldron_core.konfig.writing.proxies import Proxy
from kauldron_core.sweeps.axes import PointList, from_points
from kauldron_core.sweeps.config_import import ImportedFile, import_file
from kauldron_core.sweeps.trials_file import read_points
from kauldron_core.sweeps.user_code import call_user


@dataclass(frozen=True)
class ConfigFile:
    """A config with where it comes from.

    Attributes:
      config: The config, overrides not applied yet.
      path: The file.
      name: Its name without folder and ending; the default name of a run.
      module: The imported module; None for a JSON file.
      imported: How the file was imported; None for a JSON file.
      aliases: Module path of each alias that the file imports.
    """

    config: Any
    path: Path
    name: str
    module: ModuleType | None = None
    imported: ImportedFile | None = None
    aliases: Aliases | None = None

    def sweep(self, name: str = "") -> PointList:
        """Returns the points of `sweep()` or `sweep_NAME()`.

        Raises:
          ConfigError: When there is no such function, or it yields something else than dictionaries of overrides.
        """
        return from_points(_points(self, name))


def load_config_file(path: str, args: Mapping[str, str] | None = None, *, root: str | Path | None = None) -> ConfigFile:
    """Returns the config that `CONFIG.py`, `CONFIG.py:size=large` or `CONFIG.json` names.

    Args:
      path: The file as written on the command line.
      args: Argument texts of `get_config`, beside those after the colon.
      root: Folder that module names count from; the working directory by default.

    Raises:
      ConfigError: When the file does not exist, fails, or does not take an argument.
    """
    name, texts = split_arguments(path)
    for key, text in (args or {}).items():
        if key in texts:
            raise ConfigError(refusal(f"--args.{key}={text}", f"{path} gives this argument too"))
        texts[key] = text
    file = rundir.with_home(name)
    if not file.is_file():
        raise ConfigError(_missing(file, name))
    if file.suffix == ".json":
        return _load_json(file, texts)
    if file.suffix != ".py":
        raise ConfigError(refusal(name, f"a config is a .py or .json file, not {shown(file.suffix or file.name)}"))
    imported = import_file(file, root=Path(root) if root else None)
    config = _get_config(imported.module, texts, file)
    return ConfigFile(config, file, file.stem, imported.module, imported, aliases_of(imported.module))


def split_arguments(path: str) -> tuple[str, dict[str, str]]:
    """Returns the file and the argument texts of `FILE.py:name=text,other=text`."""
    head, ending, tail = path.partition(".py:")
    if not ending:
        if ".json:" in path:
            raise ConfigError(refusal(path, "a JSON file takes no arguments", write=path.partition(":")[0]))
        return path, {}
    texts: dict[str, str] = {}
    for item in split_items(tail) if tail.strip() else []:
        key, equals, text = partition_outside(item, "=")
        if not equals or not key.strip().isidentifier():
            raise ConfigError(refusal(path, f"{shown(item)} is not NAME=VALUE", write=f"{head}.py:NAME={item}"))
        if key.strip() in texts:
            raise ConfigError(refusal(path, f"argument {key.strip()!r} is given twice"))
        texts[key.strip()] = text
    return f"{head}.py", texts


def aliases_of(module: ModuleType) -> dict[str, Proxy | str]:
    """Returns what the names of a config file stand for: its imports, and the file itself."""
    aliases: dict[str, Proxy | str] = {module.__name__.rpartition(".")[2]: module.__name__}
    for name, value in vars(module).items():
        if isinstance(value, Proxy):
            aliases[name] = value
        elif isinstance(value, ModuleType):
            aliases[name] = value.__name__
    return aliases


def _load_json(file: Path, texts: Mapping[str, str]) -> ConfigFile:
    if texts:
        raise ConfigError(refusal(f"--args.{next(iter(texts))}", f"{file} is a JSON file and takes no arguments"))
    return ConfigFile(load(file), file, file.stem)


def _missing(file: Path, name: str) -> str:
    if file.is_dir():
        near = sorted(str(entry) for entry in file.glob("*.py"))
        return refusal(name, "this is a folder, not a config file", available=near)
    if (
        all(part.isidentifier() for part in name.split("."))
        and (module := Path(*name.split("."))).with_suffix(".py").is_file()
    ):
        return refusal(name, "a config is given as a file", write=str(module.with_suffix(".py")))
    if os.path.lexists(file):
        what = "a link that leads to no file" if file.is_symlink() else "no file but a pipe or a device"
        return refusal(name, f"this is {what}, and no config")
    folder = file.parent if file.parent.is_dir() else Path()
    near = sorted(str(entry) for entry in folder.iterdir() if entry.suffix in (".py", ".json"))
    return unknown_name("config file", name, near)


def _get_config(module: ModuleType, texts: Mapping[str, str], file: Path) -> Any:
    get_config = getattr(module, "get_config", None)
    if not callable(get_config):
        functions = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        match = closest("get_config", functions)
        hint = f" Did you mean {match!r}?" if match else ""
        raise ConfigError(f"{file}: a config file defines get_config().{hint} Available: {listing(functions)}.")
    arguments = _arguments(get_config, texts, module)
    config = call_user(lambda: get_config(**arguments), file, "get_config")
    if isinstance(config, (Mapping, Node)) and not isinstance(config, ConfigDict):
        config = ConfigDict(cast("Mapping[Any, Any]", config))
    if not isinstance(config, ConfigDict):
        kind = type(config).__name__
        raise ConfigError(
            f"{file}: get_config() returned a {kind}, not a config; build it inside `with konfig.imports():`."
        )
    return config


def _arguments(function: Callable[..., Any], texts: Mapping[str, str], module: ModuleType) -> dict[str, Any]:
    """Returns the values of argument texts, by annotation or default."""
    known = signature_of(function) or ANYTHING
    names = Names.of({}, aliases_of(module))
    values: dict[str, Any] = {}
    for name, text in texts.items():
        at = f"--args.{name}"
        if name not in known.parameters and not known.takes_more_names:
            raise ConfigError(unknown_name("argument of get_config", name, known.parameters, at=at))
        parameter = known.at(name)
        current = None if parameter.is_required else parameter.default
        values[name] = read_value(text, Slot(at, current, parameter.annotation, parameter.default), names)
    missing = [name for name, one in known.parameters.items() if one.is_required and name not in values]
    if missing:
        raise ConfigError(
            refusal(f"--args.{missing[0]}", "get_config needs this argument", write=f"--args.{missing[0]}=VALUE")
        )
    return values


def _points(config_file: ConfigFile, name: str) -> Iterable[Mapping[str, Any]]:
    flag = f"--sweep={name}" if name else "--sweep"
    function_name = f"sweep_{name}" if name else "sweep"
    if config_file.module is None:
        raise ConfigError(refusal(flag, f"{config_file.path} is a JSON file and has no sweep functions"))
    function = getattr(config_file.module, function_name, None)
    if not callable(function):
        raise ConfigError(_unknown_sweep(config_file, flag, name))
    file = config_file.path
    found = call_user(lambda: list(cast("Iterable[Any]", function())), file, function_name)
    if not found:
        raise ConfigError(f"{file}: {function_name}() yields nothing.")
    points: list[dict[str, Any]] = []
    for number, point in enumerate(found):
        if not isinstance(point, Mapping):
            kind = type(point).__name__
            raise ConfigError(f"{file}: item {number} of {function_name}() is a {kind}, not a dict of overrides.")
        entries = cast("Mapping[Any, Any]", point)
        points.append({str(path).removeprefix("cfg."): entries[path] for path in entries})
    return points


def _unknown_sweep(config_file: ConfigFile, flag: str, name: str) -> str:
    found = [key for key, value in vars(config_file.module).items() if key.startswith("sweep") and callable(value)]
    available = ["--sweep" if key == "sweep" else f"--sweep={key.removeprefix('sweep_')}" for key in found]
    if not name:
        return refusal(flag, f"{config_file.path} has no function sweep()", available=available)
    names = [key.removeprefix("sweep_") for key in found if key != "sweep"]
    return unknown_name("sweep function", name, names, at=f"{flag} ({config_file.path})")


def read_trials(path: str | Path, cfg: Any, *, aliases: Aliases | None = None) -> PointList:
    """Returns the points of a file with one trial a line.

    A line is `PATH=VALUE PATH=VALUE`, quoted as on a command line, or a JSON object of values by path. Blank lines
    and lines that start with # are left out.

    Raises:
      ConfigError: With file and line, when a line cannot be read.
    """
    return from_points(read_points(Path(path), cfg, aliases))
