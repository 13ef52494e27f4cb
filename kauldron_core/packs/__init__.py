"""Packs: many trials that differ in numbers only, trained in one compiled program."""

from kauldron_core.packs.evaluation import evaluate_stacked
from kauldron_core.packs.halving import Halving
from kauldron_core.packs.members import Inherited, MemberEvent
from kauldron_core.packs.planner import Leaf, Pack, Plan, plan
from kauldron_core.packs.population import Population
from kauldron_core.packs.refining import refine
from kauldron_core.packs.rules import Rule
from kauldron_core.packs.training import Packed, iter_train, train

__all__ = [
    "Halving",
    "Inherited",
    "Leaf",
    "MemberEvent",
    "Pack",
    "Packed",
    "Plan",
    "Population",
    "Rule",
    "evaluate_stacked",
    "iter_train",
    "plan",
    "refine",
    "train",
]
