"""References that take code: functions of references, and configs that follow another one field by field."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import Node, blank, fields, is_node, is_trusted, kind_of, origin
from kauldron_core.konfig.tree.references import OpRef, PathRef, Placeholder


def ref_fn(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns a reference to `fn(*args, **kwargs)`, computed whenever it is read; alone, it decorates `fn` to do so.

    A function of a module can be saved with the config. A lambda cannot.

    Args:
      fn: What to compute.
      *args: Arguments, references or values.
      **kwargs: Arguments by name.
    """
    if not args and not kwargs:
        return _deferred(fn)
    return OpRef("call", (_undecorated(fn), *args), kwargs)


def _deferred(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def defer(*args: Any, **kwargs: Any) -> Any:
        return OpRef("call", (fn, *args), kwargs)

    vars(defer)["konfig_undecorated"] = fn
    return defer


def _undecorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    return getattr(fn, "konfig_undecorated", fn)


def ref_copy(cfg: Node) -> Any:
    """Returns a config that follows `cfg` field by field, until a field is set in the copy.

    Changes of the copy do not reach `cfg`. Fields that `cfg` gains later are not followed.
    """
    made: dict[int, Any] = {}

    def copied(node: Node) -> Any:
        if id(node) not in made:
            made[id(node)] = follower = blank(kind_of(node), trusted=is_trusted(node), origin=origin(node))
            own = fields(follower)
            for key, value in fields(node).items():
                value = value.value if type(value) is Placeholder else value
                if key in (QUALNAME, CONST):
                    own[key] = value
                elif is_node(value):
                    own[key] = copied(value)
                else:
                    own[key] = PathRef(node, (key,), trusted=is_trusted(node))
        return made[id(node)]

    return copied(cfg)
