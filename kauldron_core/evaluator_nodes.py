"""The evaluators in the config of an experiment, and what identifies the numbers that they give; read without JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kauldron_core.konfig import ConfigDict, fingerprint

INHERITED: Mapping[str, str] = {"ds": "eval_ds", "losses": "train_losses", "metrics": "train_metrics"}
"""Where an experiment keeps what its evaluators leave unset, if under another name."""

# What is kept, read and said of the same numbers.
_WITHOUT_INFLUENCE = ("better", "per_example", "keep_examples", "discard_opt")


def evaluator_nodes(cfg: ConfigDict) -> dict[str, ConfigDict]:
    """Returns the evaluators' nodes by name; those that an override has set to None are left out."""
    nodes: Mapping[str, Any] = cfg.get("evals") or {}
    return {name: nodes[name] for name in nodes if nodes[name] is not None}


def read_by_evaluator(cfg: ConfigDict, name: str) -> dict[str, Any]:
    """Returns the node of evaluator `name`, but for when it runs, with what it takes from the root of the config."""
    node: Any = evaluator_nodes(cfg)[name]
    own: dict[str, Any] = {key: value for key, value in node.items() if key != "run"}
    return {**own, **{key: cfg.get(root) for key, root in INHERITED.items() if node.get(key) is None}}


def evaluator_fingerprint(cfg: ConfigDict, name: str) -> str:
    """Returns what identifies the numbers that evaluator `name` gives: a hash of everything that it reads."""
    read = read_by_evaluator(cfg, name)
    return fingerprint({key: value for key, value in read.items() if key not in _WITHOUT_INFLUENCE})
