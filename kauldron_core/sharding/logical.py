"""`LogicalRules`: a sharding for each parameter by the names that the model gives to its dimensions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from kauldron_core.errors import ConfigError, closest, listing
from kauldron_core.sharding.mesh import AnyMesh
from kauldron_core.sharding.partition import Dims, NamedLeaf, axes_of, leaves_of
from kauldron_core.sharding.rules import REPLICATED, ShardingRule


@dataclasses.dataclass(frozen=True)
class LogicalRules(ShardingRule):
    """Mesh axes for the names in the Flax metadata of parameters (`nn.with_logical_partitioning`).

        kd.sharding.LogicalRules({"embed": "fsdp", "mlp": "model", "heads": "model"})

    An axis splits one dimension of an array: earlier rules go first, and a name may have several rules. A name without
    a rule that is the name of an axis stands for it (`nn.with_partitioning`); dimensions of other names stay whole.

    Attributes:
      rules: Axes (one, several or None) by name, or pairs of them.
      default: A rule for arrays without metadata.
      missing_ok: Whether a rule may be about a name that no array has, which otherwise is an error.
    """

    rules: Mapping[str, Any] | Sequence[tuple[str, Any]]
    default: ShardingRule = REPLICATED
    missing_ok: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self):
        pairs = self.rules.items() if isinstance(self.rules, Mapping) else self.rules
        pairs = tuple((name, tuple(axis) if isinstance(axis, list) else axis) for name, axis in pairs)
        object.__setattr__(self, "rules", pairs)

    @property
    def named_axes(self) -> tuple[str, ...]:
        return (*(axis for _, dim in self.rules for axis in axes_of(dim)), *self.default.named_axes)

    def shardings(self, tree: Any, mesh: AnyMesh, *, at: str = "sharding") -> Any:
        self._check_used(tree, at=at)
        return super().shardings(tree, mesh, at=at)

    def dims(self, leaf: NamedLeaf, mesh: AnyMesh) -> Dims:
        if leaf.names is None:
            return self.default.dims(leaf, mesh)
        found: list[Any] = [None] * len(leaf.names)
        own = [(name, name) for name in mesh.axis_names if name not in dict(self.rules)]
        for name, dim in (*self.rules, *own):
            taken = {axis for other in found for axis in axes_of(other)}
            for index, logical in enumerate(leaf.names):
                if logical == name and found[index] is None and taken.isdisjoint(axes_of(dim)):
                    found[index] = dim
                    break
        return tuple(found)

    def _check_used(self, tree: Any, *, at: str) -> None:
        leaves = leaves_of(tree)[0]
        names = list(dict.fromkeys(name for leaf in leaves for name in leaf.names or () if name is not None))
        for name, _ in self.rules:
            if leaves and not self.missing_ok and name not in names:
                near = closest(name, names)
                hint = f" Did you mean {near!r}?" if near else ""
                raise ConfigError(
                    f"{at}: no dimension of a parameter is named {name!r}.{hint} Named: {listing(names)}. "
                    "`missing_ok=True` accepts a rule for none."
                )
