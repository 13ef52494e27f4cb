"""Which device holds what: meshes, rules, and a strategy for a whole training state."""

from kauldron_core.sharding.logical import LogicalRules
from kauldron_core.sharding.mesh import DATA_AXES, MeshSpec, current_mesh, in_mesh
from kauldron_core.sharding.partition import IndivisibleError
from kauldron_core.sharding.path_rules import PathRules
from kauldron_core.sharding.placing import device_put
from kauldron_core.sharding.platform import check_platform, default_platform
from kauldron_core.sharding.rules import FIRST_DIM, REPLICATED, FirstDim, FSDPSharding, ShardingRule, Split
from kauldron_core.sharding.strategy import ShardingStrategy, fitted
from kauldron_core.sharding.trees import ShardingTree, resolved, with_sharding_constraint

__all__ = [
    "DATA_AXES",
    "FIRST_DIM",
    "FSDPSharding",
    "FirstDim",
    "IndivisibleError",
    "LogicalRules",
    "MeshSpec",
    "PathRules",
    "REPLICATED",
    "ShardingRule",
    "ShardingStrategy",
    "ShardingTree",
    "Split",
    "check_platform",
    "current_mesh",
    "default_platform",
    "device_put",
    "fitted",
    "in_mesh",
    "resolved",
    "with_sharding_constraint",
]
