"""Builds the objects that a config describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.calls.hints import element
from kauldron_core.konfig.calls.signatures import ANYTHING
from kauldron_core.konfig.calls.targets import find_loaded, find_target, split
from kauldron_core.konfig.resolving.immutable import ImmutableDict, register_with_jax
from kauldron_core.konfig.resolving.overlays import places_of
from kauldron_core.konfig.resolving.uncalled import uncalled, wants_instance
from kauldron_core.konfig.tree.arguments import PARTIAL, check_complete, signature_of_node
from kauldron_core.konfig.tree.building import Builder
from kauldron_core.konfig.tree.evaluate import Evaluation
from kauldron_core.konfig.tree.labels import label, shown_key
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import (
    Node,
    fields,
    is_a,
    is_node,
    is_sequence,
    is_trusted,
    kind_of,
    name_of,
    origin,
)
from kauldron_core.konfig.tree.references import ReferenceFailed, RequiredValueMissing
from kauldron_core.konfig.tree.size import check_size
from kauldron_core.konfig.tree.walking import nodes, walk
from kauldron_core.konfig.trusting import rules as trusting
from kauldron_core.konfig.writing.config_dict import ConfigDict

_LEAVES: Final = frozenset({type(None), bool, int, float, str, bytes, complex, slice, type(...)})
_OWN_FAILURES: Final = (ReferenceFailed, RequiredValueMissing, trusting.UntrustedError)


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
    resolver.check_size(root)
    resolver.prepare(root, ())
    register_with_jax()  # What is built next may look into the dicts that it is given.
    return resolver.build(root, ())


def named_objects(cfg: Any) -> tuple[Any, ...]:
    """Returns the objects that the calls and names of a config stand for, None for a module not imported yet."""
    names = {name_of(node) for node in nodes(cfg)}
    return tuple(find_loaded(name) for name in sorted(name for name in names if name is not None))


def _check_names(root: Any, trusted: bool) -> None:
    """Refuses names that a file may not use, all of them before the first import."""
    for path, node in walk(root, operands=True):
        name = name_of(node)
        if name is not None and not (trusted and is_trusted(node)):
            try:
                trusting.check_name(*split(name))
                if QUALNAME in fields(node):
                    trusting.check_call(*split(name))
            except trusting.UntrustedError as error:
                raise trusting.UntrustedError(f"{paths.join('cfg', *path)}: {error}") from None


class _Resolver:
    """One resolution: first everything is found and checked, then it is built."""

    def __init__(self, root: Any, *, freeze: bool, overlay: Mapping[str, Any], trusted: bool) -> None:
        self._freeze = freeze
        self._trusted = trusted
        self._replaced = places_of(root, overlay)
        self._evaluation = Evaluation(self._replaced, trusted=trusted)
        self._targets: dict[int, Any] = {}
        self._built: dict[int, Any] = {}
        self._open: set[int] = set()
        self._converted: dict[int, tuple[Any, Any]] = {}
        self._nodes: list[Node] = []

    def check_size(self, root: Any) -> None:
        """Refuses what could not be built for its size."""
        check_size(root, self._evaluation, is_shared=True)

    def prepare(self, value: Any, path: tuple[Any, ...]) -> None:
        """Finds the targets of all calls below `value`, and checks their arguments."""
        value = self._read(value, path)
        if is_node(value):
            if id(value) not in self._targets:
                self._prepare_node(value, path)
        elif is_sequence(value):
            for index, item in enumerate(value):
                self.prepare(item, (*path, index))

    def _prepare_node(self, node: Any, path: tuple[Any, ...]) -> None:
        self._nodes.append(node)  # A node that a reference made must outlive this resolution: ids name nodes here.
        own = fields(node)
        name = name_of(node)
        self._targets[id(node)] = None if name is None else self._find(node, name, path)
        excluded = self._excluded(node)
        for key in self._keys(node):
            if key not in excluded:
                below = (*path, shown_key(own, key))
                self.prepare(self._field(node, key, below), below)

    def _find(self, node: Any, name: str, path: tuple[Any, ...]) -> Any:
        at = paths.join("cfg", *path)
        try:
            target = find_target(name, trusted=self._is_trusted(node))
        except ConfigError as error:
            message = str(error) if str(error).startswith("cfg") else f"{at}: {error}"
            placed = type(error)(message)
            _annotate(placed, node, path)
            raise placed from None
        except Exception as error:  # What the import of somebody's module raises goes on, with its place.
            _annotate(error, node, path)
            raise
        if QUALNAME not in fields(node):
            return target
        if not callable(target):
            raise ConfigError(f"{at}: {label(fields(node))[:-5]} cannot be called")
        try:
            check_complete(node, target, at=at)
        except ConfigError as error:
            _annotate(error, node, path)
            raise
        return target

    def _is_trusted(self, node: Any) -> bool:
        return self._trusted and is_trusted(node)

    def _keys(self, node: Node) -> list[Any]:
        own = [key for key in fields(node) if key != QUALNAME and key != CONST]
        return own + [key for place, key in self._replaced if place == id(node) and key not in own]

    def _excluded(self, node: Node) -> tuple[str, ...]:
        return tuple(getattr(self._targets.get(id(node)), "__konfig_resolve_exclude_fields__", ()))

    def _field(self, node: Node, key: Any, path: tuple[Any, ...]) -> Any:
        try:
            return self._evaluation.read(node, key)
        except _OWN_FAILURES as error:
            raise type(error)(f"{paths.join('cfg', *path)}: {error}") from None
        except Exception as error:  # The function of a ref_fn may raise anything.
            error.add_note(f"while computing {paths.join('cfg', *path)}")
            raise

    def _read(self, value: Any, path: tuple[Any, ...]) -> Any:
        """Returns what `value` stands for, in config form (lists can gain plain dicts behind a config's back)."""
        if kind_of(value) in _LEAVES or is_node(value):
            return value
        value = self._evaluation.value(value)
        if is_a(value, dict) or getattr(kind_of(value), "__konfig_value__", None) is not None:
            if id(value) not in self._converted:
                self._converted[id(value)] = value, Builder(ConfigDict, trusted=self._trusted).convert(value)
            return self._converted[id(value)][1]
        return value

    def build(self, value: Any, path: tuple[Any, ...]) -> Any:
        """Returns what `value` describes."""
        value = self._read(value, path)
        if is_node(value):
            return self._build_node(value, path)
        if is_sequence(value):
            items = [self.build(item, (*path, index)) for index, item in enumerate(value)]
            return items if type(value) is list and not self._freeze else tuple(items)
        return value

    def _build_node(self, node: Node, path: tuple[Any, ...]) -> Any:
        place = id(node)
        if place in self._built:
            return self._built[place]
        if place in self._open:
            raise ConfigError(f"{paths.join('cfg', *path)}: the config contains itself")
        if place not in self._targets:
            self.prepare(node, path)
        self._open.add(place)
        try:
            self._built[place] = built = self._construct(node, path)
        finally:
            self._open.discard(place)
        return built

    def _construct(self, node: Any, path: tuple[Any, ...]) -> Any:
        own = fields(node)
        if CONST in own:
            return self._targets[id(node)]
        excluded = self._excluded(node)
        arguments: dict[Any, Any] = {}
        for key in self._keys(node):
            below = (*path, shown_key(own, key))
            value = self._field(node, key, below)
            if own.get(QUALNAME) not in (None, PARTIAL):
                self._check_called(value, lambda key=key: _annotation(node, key), below)
            arguments[key] = value if key in excluded else self.build(value, below)
        if QUALNAME not in own:
            return ImmutableDict(arguments) if self._freeze else arguments
        return self._call(node, arguments, path)

    def _check_called(self, value: Any, annotation: Callable[[], Any], path: tuple[Any, ...]) -> None:
        """Refuses a class where the argument takes what it makes, in the lists and dicts there too."""
        if is_node(value) and CONST in fields(value):
            target = self._targets[id(value)]
            if isinstance(target, type) and wants_instance(target, annotation()):
                raise ConfigError(uncalled(target, label(fields(value)), at=paths.join("cfg", *path)))
        elif is_node(value) and QUALNAME not in fields(value):
            for key, inner in fields(value).items():
                self._check_called(inner, lambda key=key: element(annotation(), key), (*path, key))
        elif is_sequence(value):
            for index, inner in enumerate(value):
                self._check_called(inner, lambda index=index: element(annotation(), index), (*path, index))

    def _call(self, node: Any, arguments: dict[Any, Any], path: tuple[Any, ...]) -> Any:
        positional: list[Any] = []
        while str(len(positional)) in arguments:
            positional.append(arguments.pop(str(len(positional))))
        try:
            if fields(node)[QUALNAME] == PARTIAL and positional and not self._is_trusted(node):
                trusting.check_callable(positional[0], getattr(positional[0], "__qualname__", "the function"))
            built = self._targets[id(node)](*positional, **arguments)
            finish = getattr(kind_of(built), "__post_konfig_resolve__", None)
            if finish is not None:
                finish(built, node)
            return built
        except Exception as error:  # Whatever a constructor raises goes on, with its place in the config.
            _annotate(error, node, path)
            raise


def _annotation(node: Any, key: Any) -> Any:
    return (signature_of_node(node) or ANYTHING).at(key).annotation


def _annotate(error: Exception, node: Any, path: tuple[Any, ...]) -> None:
    """Says on the error which node it comes from, unless something below said so already."""
    if not any(note.startswith("while building") for note in getattr(error, "__notes__", ())):
        written = f", written at {origin(node)}" if origin(node) else ""
        error.add_note(f"while building {paths.join('cfg', *path)}: {label(fields(node))}{written}")
