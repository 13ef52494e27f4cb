"""Copies of configs, merges, and whether two are equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kauldron_core.konfig.tree.evaluate import Evaluation
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import (
    PLAIN,
    Node,
    blank,
    distrust,
    fields,
    is_a,
    is_node,
    is_sequence,
    is_trusted,
    kind_of,
    stored_key,
)
from kauldron_core.konfig.tree.references import OpRef, PathRef, Placeholder
from kauldron_core.konfig.tree.walking import child, nodes

_MEMBERS = "kauldron_core.konfig members"


def deepcopy(root: Any, memo: dict[Any, Any] | None = None) -> Any:
    """Returns a copy in which shared nodes stay shared and references point into the copy."""
    memo = {} if memo is None else memo
    members: set[int] = memo.setdefault(_MEMBERS, set())
    members.update(id(node) for node in nodes(root))
    return _copy_node(root, memo)


def _copy_node(node: Any, memo: dict[Any, Any]) -> Any:
    known = memo.get(id(node))
    if known is not None:
        return known
    copied: Any = object.__new__(kind_of(node))
    memo[id(node)] = copied
    copied_fields: dict[Any, Any] = {}
    copied.__dict__.update({**vars(node), "_fields": copied_fields})
    for key, value in fields(node).items():
        copied_fields[key] = value if kind_of(value) in _ATOMS else _copy_value(value, memo)
    return copied


_SEQUENCES = frozenset({list, tuple})
_ATOMS = PLAIN | {bytes}


def _copy_value(value: Any, memo: dict[Any, Any]) -> Any:
    if is_node(value):
        return _copy_node(value, memo)
    kind = kind_of(value)
    if kind in _SEQUENCES:
        if id(value) not in memo:
            memo[id(value)] = kind(item if kind_of(item) in _ATOMS else _copy_value(item, memo) for item in value)
        return memo[id(value)]
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
    while id(value) not in members:
        try:
            value = child(value, parts[0])
        except LookupError:  # Also where the path has ended.
            return None, ()
        value, parts = value.value if type(value) is Placeholder else value, parts[1:]
    return value, parts


def merge(target: Any, source: Any) -> None:
    """Merges `source` into `target`; what `source` holds is copied, its references lead into `target`."""
    if not is_node(source):
        for key, value in source.items():
            _merge_field(target, key, value)
        return
    memo: dict[Any, Any] = {_MEMBERS: {id(node) for node in nodes(source)}}
    _merge_node(target, source, memo)


def _merge_node(target: Any, source: Any, memo: dict[Any, Any]) -> None:
    memo[id(source)] = target
    if not is_trusted(source):
        distrust(target)
    for key, value in list(fields(source).items()):
        old = fields(target).get(key)
        if _merges(old, value):
            _merge_node(old, value, memo)
        elif key in (QUALNAME, CONST):
            fields(target)[key] = value
        else:
            target[key] = _copy_value(value, memo)


def _merge_field(target: Any, key: Any, value: Any) -> None:
    old = fields(target).get(stored_key(target, key))
    if is_a(value, Mapping) and _merges(old, value):
        merge(old, value)
    else:
        target[key] = value


def _merges(old: Any, new: Any) -> bool:
    """Whether `new` goes into `old` field by field: dicts into dicts and calls, calls into calls of the same target."""
    if not is_node(old) or not is_a(new, (Node, Mapping)):
        return False
    if CONST in old or CONST in new:
        return False
    return QUALNAME not in new or (QUALNAME in old and old[QUALNAME] == new[QUALNAME])


def without_references(root: Any) -> Any:
    """Returns a deep copy in which every reference is replaced by what it stands for."""

    def copied(node: Any, own: dict[Any, Any]) -> Any:
        made = blank(kind_of(node))
        made.__dict__.update({**vars(node), "_fields": own})
        return made

    return _remade(root, copied, Evaluation())


def to_dict(root: Any, *, preserve: bool) -> dict[Any, Any]:
    """Returns the config as nested dicts that share what the config shares."""
    return _remade(root, lambda _, own: own, None if preserve else Evaluation())


def _remade(root: Any, make: Callable[[Any, dict[Any, Any]], Any], evaluation: Evaluation | None) -> Any:
    """Returns a config whose nodes are what `make` returns of a node and its new fields; shared ones stay shared."""
    memo: dict[int, Any] = {}

    def remade(value: Any) -> Any:
        value = value if evaluation is None else evaluation.value(value)
        if is_node(value):
            if id(value) not in memo:
                own: dict[Any, Any] = {}
                memo[id(value)] = make(value, own)
                for key, item in fields(value).items():
                    own[key] = remade(item if evaluation is None else evaluation.read(value, key))
            return memo[id(value)]
        return kind_of(value)(map(remade, value)) if is_sequence(value) else value

    return remade(root)


def is_equal(left: Any, right: Any) -> bool:
    """Returns whether two configs hold equal values under equal keys, references read."""
    evaluation = Evaluation()
    compared: set[tuple[int, int]] = set()

    def same(one: Any, other: Any) -> bool:
        one, other = evaluation.value(one), evaluation.value(other)
        if is_node(one) and is_node(other):
            if (id(one), id(other)) in compared:
                return True
            compared.add((id(one), id(other)))
            return fields(one).keys() == fields(other).keys() and all(
                same(evaluation.read(one, key), evaluation.read(other, key)) for key in fields(one)
            )
        if is_sequence(one):
            return type(one) is kind_of(other) and len(one) == len(other) and all(map(same, one, other))
        return one is other or bool(one == other)

    return same(left, right)
