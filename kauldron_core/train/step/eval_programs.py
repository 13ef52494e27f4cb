"""The compiled programs of inline evaluators, kept in the process for trials that evaluate the same model alike."""

from __future__ import annotations

import collections
from typing import Any

from kauldron_core import konfig
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.resolving.build import named_objects

_INHERITED = {"losses": "train_losses", "metrics": "train_metrics", "model": "model", "ds": "eval_ds"}
_SHARED = ("precision", "rng_streams", "sharding")
_MAX_KEPT = 32

_kept: collections.OrderedDict[Any, list[Any]] = collections.OrderedDict()


def of(cfg: Any, name: str) -> list[Any]:
    """Returns the list of programs that evaluator `name` of an experiment shares with those that compute the same.

    A config that can't be compared with others, since it holds what has no name, has a list of its own.
    """
    try:
        key = _key(cfg, name)
    except ConfigError:
        return []
    programs = _kept.setdefault(key, [])
    _kept.move_to_end(key)
    while len(_kept) > _MAX_KEPT:
        _kept.popitem(last=False)
    return programs


def clear() -> None:
    """Forgets all programs."""
    _kept.clear()


def _key(cfg: Any, name: str) -> Any:
    node = cfg.evals[name]
    read: dict[str, Any] = {field: node[field] for field in node if field != "run"}
    read |= {field: cfg.get(root) for field, root in _INHERITED.items() if node.get(field) is None}
    read |= {field: cfg.get(field) for field in _SHARED}
    if cfg.get("rng_streams") is not None:
        # Without streams of its own a model has no random bits in an evaluation, whatever the seed.
        read["seed"] = cfg.get("seed")
    part = konfig.ConfigDict({"read": read})
    return konfig.fingerprint(part), tuple(map(id, named_objects(part.copy_and_resolve_references())))
