"""Builds the objects that a config describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_collections

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig import signatures, trusting
from kauldron_core.konfig.config_dict import ConfigDict
from kauldron_core.konfig.copying import walk
from kauldron_core.konfig.evaluate import Evaluation, fields
from kauldron_core.konfig.immutable import ImmutableDict, register_with_jax
from kauldron_core.konfig.markers import CONST, QUALNAME
from kauldron_core.konfig.names_of_nodes import label
from kauldron_core.konfig.normalize import Builder
from kauldron_core.konfig.targets import find_target, split


def resolve(cfg: Any, *, freeze: bool = True, overlay: Mapping[str, Any] | None = None, trusted: bool = True) -> Any:
    """Returns the object that a config describes.

    Each shared node is built once. Nothing is called before every name was found and every call has the arguments
    that it needs.

    Args:
      cfg: A config, or plain dicts and lists that hold calls.
      freeze: Whether lists become tuples, and plain dicts immutable ones.
      overlay: Values that replace leaves while building, by path. They may be anything (tracers); references follow
        them, and the config is not changed.
      trusted: False treats every node as one read from a file.

    Raises:
      ConfigError: When the config is wrong. Errors of what is called keep their type and gain a note with the
        config path, the call, and where it was written.
    """
    root = Builder(ConfigDict).convert(cfg)
    _check_names(root, trusted)
    resolver = _Resolver(root, freeze=freeze, overlay=overlay or {}, trusted=trusted)
    resolver.prepare(root, ())
    built = resolver.build(root, ())
    register_with_jax()
    return built


def _check_names(root: Any, trusted: bool) -> None:
    """Refuses names that a file may not use, all of them before the first import."""
    for path, node in walk(root, operands=True):
        name = fields(node).get(QUALNAME, fields(node).get(CONST))
        if name is not None and not (trusted and node.is_trusted):
            try:
                trusting.check_name(*split(name))
            except trusting.UntrustedError as error:
                raise trusting.UntrustedError(f"{paths.join('cfg', *path)}: {error}") from None


class _Resolver:
    def __init__(self, root: Any, *, freeze: bool, overlay: Mapping[str, Any], trusted: bool) -> None:
        self._freeze = freeze
        self._trusted = trusted
        self._replaced = {_place(root, path): value for path, value in overlay.items()}
        self._evaluation = Evaluation(self._replaced, trusted=trusted)
        self._targets: dict[int, Any] = {}
        self._built: dict[int, Any] = {}
        self._open: set[int] = set()
        self._kept: list[Any] = []

    def prepare(self, value: Any, path: tuple[Any, ...]) -> None:
        """Finds the targets of all calls below `value`, and checks their arguments."""
        value = self._read(value, path)
        if isinstance(value, ml_collections.ConfigDict):
            if id(value) not in self._targets:
                self._prepare_node(value, path)
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
                self.prepare(item, (*path, index))

    def _prepare_node(self, node: ml_collections.ConfigDict, path: tuple[Any, ...]) -> None:
        self._kept.append(node)
        own = fields(node)
        name = own.get(QUALNAME, own.get(CONST))
        self._targets[id(node)] = None
        if name is not None:
            try:
                self._targets[id(node)] = find_target(name, trusted=self._trusted and node.is_trusted)  # pyright: ignore[reportAttributeAccessIssue]
                if QUALNAME in own:
                    signatures.check_complete(node, self._targets[id(node)], at=paths.join("cfg", *path))
            except Exception as error:
                _annotate(error, node, path)
                raise
        for key in self._keys(node):
            if key not in self._excluded(node):
                self.prepare(self._field(node, key, path), (*path, key))

    def _keys(self, node: ml_collections.ConfigDict) -> list[Any]:
        own = [key for key in fields(node) if key not in (QUALNAME, CONST)]
        return own + [key for place, key in self._replaced if place == id(node) and key not in own]

    def _excluded(self, node: ml_collections.ConfigDict) -> tuple[str, ...]:
        return tuple(getattr(self._targets.get(id(node)), "__konfig_resolve_exclude_fields__", ()))

    def _field(self, node: ml_collections.ConfigDict, key: Any, path: tuple[Any, ...]) -> Any:
        try:
            return self._evaluation.read(node, key)
        except Exception as error:
            error.add_note(f"while reading {paths.join('cfg', *path, key)}")
            raise

    def _read(self, value: Any, path: tuple[Any, ...]) -> Any:
        try:
            return self._evaluation.value(value)
        except Exception as error:
            error.add_note(f"while reading {paths.join('cfg', *path)}")
            raise

    def build(self, value: Any, path: tuple[Any, ...]) -> Any:
        """Returns what `value` describes."""
        value = self._read(value, path)
        if isinstance(value, ml_collections.ConfigDict):
            return self._build_node(value, path)
        if type(value) is list or type(value) is tuple:
            items = [self.build(item, (*path, index)) for index, item in enumerate(value)]
            return items if type(value) is list and not self._freeze else tuple(items)
        return value

    def _build_node(self, node: ml_collections.ConfigDict, path: tuple[Any, ...]) -> Any:
        place = id(node)
        if place in self._built:
            return self._built[place]
        if place in self._open:
            raise ConfigError(f"{paths.join('cfg', *path)}: the config contains itself")
        if place not in self._targets:
            self._prepare_node(node, path)
        self._open.add(place)
        try:
            self._built[place] = built = self._construct(node, path)
        finally:
            self._open.discard(place)
        return built

    def _construct(self, node: ml_collections.ConfigDict, path: tuple[Any, ...]) -> Any:
        own = fields(node)
        if CONST in own:
            return self._targets[id(node)]
        excluded = self._excluded(node)
        arguments = {
            key: own[key] if key in excluded else self.build(self._field(node, key, path), (*path, key))
            for key in self._keys(node)
        }
        if QUALNAME not in own:
            return ImmutableDict(arguments) if self._freeze else arguments
        return self._call(node, arguments, path)

    def _call(self, node: ml_collections.ConfigDict, arguments: dict[Any, Any], path: tuple[Any, ...]) -> Any:
        positional: list[Any] = []
        while str(len(positional)) in arguments:
            positional.append(arguments.pop(str(len(positional))))
        try:
            built = self._targets[id(node)](*positional, **arguments)
            finish = getattr(type(built), "__post_konfig_resolve__", None)
            if finish is not None:
                finish(built, node)
            return built
        except Exception as error:
            _annotate(error, node, path)
            raise


def _place(root: Any, path: str) -> tuple[int, Any]:
    """Returns the node that holds the leaf at `path`, and its key there."""
    *above, last = paths.parse(path)
    node = root
    for part in above:
        node = node[part]
    return id(node), node.field_key(last)


def _annotate(error: Exception, node: ml_collections.ConfigDict, path: tuple[Any, ...]) -> None:
    """Says on the error which node it comes from, unless something below said so already."""
    if any(note.startswith("while building") for note in getattr(error, "__notes__", ())):
        return
    origin = getattr(node, "origin", None)
    written = f", written at {origin}" if origin else ""
    error.add_note(f"while building {paths.join('cfg', *path)}: {label(fields(node))}{written}")
