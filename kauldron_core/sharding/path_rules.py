"""`PathRules`: a sharding for each parameter by its path."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.sharding.mesh import AnyMesh, check_axes
from kauldron_core.sharding.partition import NamedLeaf, leaves_of
from kauldron_core.sharding.rules import REPLICATED, ShardingRule, Split

_REGEX_CHARACTERS = re.compile(r"[+?^$|(){}\[\]\\]")
_INDEX = re.compile(r"\[(\d+)\]")


@dataclasses.dataclass(frozen=True)
class PathRules(ShardingRule):
    """The first rule whose pattern matches the path.

        kd.sharding.PathRules([("embedding", ("model", None)), ("mlp.*.kernel", (None, "model"))])

    A pattern matches whole segments, anywhere in the dotted path, in which list indices are segments:
    `encoder.layers.0.kernel` holds `layers.0` and `kernel`, not `encoder.kernel`. `*` stands for a segment or a part of
    one, `**` for any number of segments. With characters of regular expressions a pattern is one (`layers_[01]`).

    Attributes:
      rules: Pairs of a pattern and what it gives: axes for each dimension, as in a `PartitionSpec`, or a rule.
      default: For what no pattern matches.
      missing_ok: Whether a pattern may match nothing, which otherwise is an error.
    """

    rules: Sequence[tuple[str, Any]]
    default: Any = REPLICATED
    missing_ok: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self):
        pairs = self.rules.items() if isinstance(self.rules, Mapping) else self.rules
        object.__setattr__(self, "rules", tuple((pattern, _as_rule(rule)) for pattern, rule in pairs))
        object.__setattr__(self, "default", _as_rule(self.default))

    def shardings(self, tree: Any, mesh: AnyMesh, *, at: str = "sharding") -> Any:
        check_axes(self.named_axes, mesh, at=at)
        leaves, structure = leaves_of(tree)
        chosen = [self._choice(leaf) for leaf in leaves]
        self._check_used(leaves, at=at)
        return jax.tree.unflatten(
            structure,
            [rule.sharding(leaf, mesh, at=at) for rule, leaf in zip(chosen, leaves, strict=True)],
        )

    def dims(self, leaf: NamedLeaf, mesh: AnyMesh) -> Any:
        return self._choice(leaf).dims(leaf, mesh)

    @property
    def named_axes(self) -> tuple[str, ...]:
        return tuple(axis for rule in (*(rule for _, rule in self.rules), self.default) for axis in rule.named_axes)

    def _choice(self, leaf: NamedLeaf) -> ShardingRule:
        return next((rule for pattern, rule in self.rules if compiled(pattern).search(leaf.path)), self.default)

    def _check_used(self, leaves: Sequence[NamedLeaf], *, at: str) -> None:
        names = [leaf.path for leaf in leaves]
        for pattern, _ in self.rules:
            if names and not self.missing_ok and not any(compiled(pattern).search(name) for name in names):
                raise ConfigError(_no_match(pattern, names, at=at))


@functools.lru_cache(maxsize=1_000)
def compiled(pattern: str) -> re.Pattern[str]:
    """Returns the regular expression that a pattern stands for, to be searched for in a dotted path."""
    readings = []
    # A path as the rest of the house writes it, `layers[0].kernel`, is one as well; `layers_[01]` may be both.
    plain = _INDEX.sub(r".\1", pattern)
    if not _REGEX_CHARACTERS.search(plain):
        readings.append(_from_glob(plain))
    if _REGEX_CHARACTERS.search(pattern):
        readings.append(pattern)
    try:
        return re.compile(rf"(?:^|\.)(?:{'|'.join(readings)})(?:\.|$)")
    except re.error as error:
        raise ConfigError(f"sharding: {pattern!r} is neither a path nor a regular expression: {error}.") from None


def _from_glob(pattern: str) -> str:
    text = ""
    for segment in pattern.split("."):
        if segment == "**":
            text += r"(?:[^.]+\.)*"
        else:
            text += r"[^.]*".join(map(re.escape, segment.split("*"))) if segment != "*" else r"[^.]+"
            text += r"\."
    return text.removesuffix(r"\.")


def _as_rule(value: Any) -> ShardingRule:
    if isinstance(value, ShardingRule):
        return value
    return Split(() if value is None else value)


def _no_match(pattern: str, names: Sequence[str], *, at: str) -> str:
    segments = list(dict.fromkeys(part for name in names for part in name.split(".")))
    available = names if "." in pattern else segments
    return unknown_name("parameter", pattern, available, at=at) + " `missing_ok=True` accepts a pattern of none."
