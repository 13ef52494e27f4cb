"""Walks over whole configs: copies, merges, comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import ml_collections

from kauldron_core.konfig.evaluate import Evaluation
from kauldron_core.konfig.markers import CONST, QUALNAME
from kauldron_core.konfig.names_of_nodes import shown_key
from kauldron_core.konfig.nodes import distrust, fields, is_trusted, stored_key
from kauldron_core.konfig.references import OpRef, PathRef, Placeholder

if TYPE_CHECKING:
    from kauldron_core.konfig.config_dict import ConfigDict

_MEMBERS = "kauldron_core.konfig members"


def nodes(root: Any) -> list[ConfigDict]:
    """Returns every node of a config once, the root first."""
    found: dict[int, Any] = {}
    pending = [root]
    while pending:
        value = pending.pop()
        if isinstance(value, ml_collections.ConfigDict):
            if id(value) not in found:
                found[id(value)] = value
                pending.extend(reversed(list(fields(value).values())))
        elif isinstance(value, (list, tuple)):
            pending.extend(reversed(value))  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, dict):
            pending.extend(reversed(value.values()))  # pyright: ignore[reportUnknownArgumentType]
        elif type(value) is Placeholder:
            pending.append(value.value)
        elif type(value) is OpRef:
            pending.extend((*value.konfig_args, *value.konfig_kwargs.values()))
    return list(found.values())


def walk(root: Any, *, operands: bool) -> Iterator[tuple[tuple[Any, ...], ConfigDict]]:
    """Yields every node of a config once with its path (the first one, where a node is shared).

    Args:
      root: The config.
      operands: Whether nodes among the operands of references count too.
    """
    visited: set[int] = set()
    pending: list[tuple[tuple[Any, ...], Any]] = [((), root)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, ml_collections.ConfigDict):
            if id(value) not in visited:
                visited.add(id(value))
                yield path, value  # pyright: ignore[reportReturnType]
                own = fields(value)
                pending.extend(((*path, shown_key(own, key)), item) for key, item in reversed(own.items()))
        elif isinstance(value, (list, tuple)):
            pending.extend(((*path, index), item) for index, item in reversed(list(enumerate(value))))  # pyright: ignore[reportUnknownArgumentType]
        elif type(value) is Placeholder:
            pending.append((path, value.value))
        elif type(value) is OpRef and operands:
            pending.extend((path, arg) for arg in (*value.konfig_args, *value.konfig_kwargs.values()))


def deepcopy(root: ConfigDict, memo: dict[Any, Any] | None = None) -> ConfigDict:
    """Returns a copy in which shared nodes stay shared and references point into the copy."""
    memo = {} if memo is None else memo
    members: set[int] = memo.setdefault(_MEMBERS, set())
    members.update(id(node) for node in nodes(root))
    return _copy_node(root, memo)


def _copy_node(node: ConfigDict, memo: dict[Any, Any]) -> ConfigDict:
    known = memo.get(id(node))
    if known is not None:
        return known
    copied = type(node).__new__(type(node))
    memo[id(node)] = copied
    state = dict(vars(node))
    state["_fields"] = {}
    vars(copied).update(state)
    copied_fields = state["_fields"]
    for key, value in fields(node).items():
        copied_fields[key] = value if type(value) in _ATOMS else _copy_value(value, memo)
    return copied


_ATOMS = frozenset({type(None), bool, int, float, str, bytes})


def _copy_value(value: Any, memo: dict[Any, Any]) -> Any:
    if isinstance(value, ml_collections.ConfigDict):
        return _copy_node(value, memo)  # pyright: ignore[reportArgumentType]
    kind = type(value)
    if kind is list or kind is tuple:
        if id(value) in memo:
            return memo[id(value)]
        copied = kind(item if type(item) in _ATOMS else _copy_value(item, memo) for item in value)
        if kind is list:
            memo[id(value)] = copied
        return copied
    if kind is set:
        return set(value)
    if kind is dict:
        return {key: _copy_value(item, memo) for key, item in value.items()}
    if kind is PathRef:
        return _copy_path_ref(value, memo)
    if kind is OpRef:
        args = tuple(_copy_value(arg, memo) for arg in value.konfig_args)
        kwargs = {name: _copy_value(arg, memo) for name, arg in value.konfig_kwargs.items()}
        return OpRef(value.konfig_op, args, kwargs, trusted=value.konfig_trusted)
    if kind is Placeholder:
        return _copy_placeholder(value, memo)
    return value  # Leaves are immutable.


def _copy_placeholder(value: Placeholder, memo: dict[Any, Any]) -> Placeholder:
    known = memo.get(id(value))
    if known is None:
        known = Placeholder(value.type, required=value.required)
        memo[id(value)] = known
        known.value = _copy_value(value.value, memo)
    return known


def _copy_path_ref(ref: PathRef, memo: dict[Any, Any]) -> PathRef:
    """Points the reference at the copy, or leaves it where it is when it points outside of what is copied."""
    anchor, parts = anchored(ref, memo[_MEMBERS])
    if anchor is None:
        return ref
    return PathRef(_copy_value(anchor, memo), parts, trusted=ref.konfig_trusted)


def anchored(ref: PathRef, members: Any) -> tuple[Any, tuple[Any, ...]]:
    """Returns the first node on the way of a reference that is one of `members` (ids), and the path from there."""
    value: Any = ref.konfig_node
    parts = ref.konfig_parts
    for index in range(len(parts) + 1):
        if id(value) in members:
            return value, parts[index:]
        if index == len(parts):
            break
        part = parts[index]
        if isinstance(value, ml_collections.ConfigDict):
            value = fields(value).get(stored_key(value, part))  # pyright: ignore[reportAttributeAccessIssue]
            value = value.value if type(value) is Placeholder else value
        elif isinstance(value, (list, tuple)) and isinstance(part, int) and -len(value) <= part < len(value):
            value = value[part]  # pyright: ignore[reportUnknownVariableType]
        else:
            break
    return None, ()


def merge(target: ConfigDict, source: Mapping[Any, Any] | ConfigDict) -> None:
    """Merges `source` into `target`; what `source` holds is copied, its references lead into `target`."""
    if not isinstance(source, ml_collections.ConfigDict):
        for key, value in source.items():
            _merge_field(target, key, value)
        return
    memo: dict[Any, Any] = {_MEMBERS: {id(node) for node in nodes(source)}}
    _merge_node(target, source, memo)


def _merge_node(target: ConfigDict, source: Any, memo: dict[Any, Any]) -> None:
    memo[id(source)] = target
    if not is_trusted(source):
        distrust(target)
    for key, value in list(fields(source).items()):
        old = fields(target).get(key)
        if _merges(old, value):
            _merge_node(old, value, memo)  # pyright: ignore[reportArgumentType]
        elif key in (QUALNAME, CONST):
            fields(target)[key] = value
        else:
            target[key] = _copy_value(value, memo)


def _merge_field(target: ConfigDict, key: Any, value: Any) -> None:
    old = fields(target).get(stored_key(target, key))
    if isinstance(value, Mapping) and _merges(old, value):
        merge(old, value)  # pyright: ignore[reportArgumentType]
    else:
        target[key] = value


def _merges(old: Any, new: Any) -> bool:
    """Whether `new` goes into `old` field by field: dicts into dicts and calls, calls into calls of the same target."""
    if not isinstance(old, ml_collections.ConfigDict) or not isinstance(new, (ml_collections.ConfigDict, Mapping)):
        return False
    if CONST in old or CONST in new:
        return False
    return QUALNAME not in new or (QUALNAME in old and old[QUALNAME] == new[QUALNAME])


def without_references(root: ConfigDict) -> ConfigDict:
    """Returns a deep copy in which every reference is replaced by what it stands for."""
    evaluation = Evaluation()
    memo: dict[Any, Any] = {}

    def copied(value: Any) -> Any:
        value = evaluation.value(value)
        if isinstance(value, ml_collections.ConfigDict):
            if id(value) not in memo:
                blank = type(value).__new__(type(value))
                memo[id(value)] = blank
                vars(blank).update(vars(value))
                vars(blank)["_fields"] = own = {}
                for key in fields(value):
                    own[key] = copied(evaluation.read(value, key))
            return memo[id(value)]
        if type(value) in (list, tuple):
            return type(value)(copied(item) for item in value)
        return value

    return copied(root)


def to_dict(root: ConfigDict, *, preserve: bool) -> dict[Any, Any]:
    """Returns the config as nested dicts that share what the config shares."""
    evaluation = Evaluation()
    memo: dict[int, Any] = {}

    def plain(value: Any) -> Any:
        value = value if preserve else evaluation.value(value)
        if isinstance(value, ml_collections.ConfigDict):
            if id(value) not in memo:
                memo[id(value)] = own = {}
                for key, item in fields(value).items():
                    own[key] = plain(item if preserve else evaluation.read(value, key))
            return memo[id(value)]
        if type(value) in (list, tuple):
            return type(value)(plain(item) for item in value)
        return value

    return plain(root)


def is_equal(left: Any, right: Any) -> bool:
    """Returns whether two configs hold equal values under equal keys, references read."""
    evaluation = Evaluation()
    compared: set[tuple[int, int]] = set()

    def same(one: Any, other: Any) -> bool:
        one, other = evaluation.value(one), evaluation.value(other)
        if isinstance(one, ml_collections.ConfigDict) and isinstance(other, ml_collections.ConfigDict):
            if (id(one), id(other)) in compared:
                return True
            compared.add((id(one), id(other)))
            return fields(one).keys() == fields(other).keys() and all(
                same(evaluation.read(one, key), evaluation.read(other, key)) for key in fields(one)
            )
        if type(one) in (list, tuple):
            return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
        return one is other or bool(one == other)

    return same(left, right)
