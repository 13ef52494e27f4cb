"""Packs: many trials that differ in numbers only, trained in one compiled program."""

from kauldron_core.packs.planning.planner import Leaf, Pack, Plan, plan
from kauldron_core.packs.planning.refining import refine
from kauldron_core.packs.rules.halving import Halving
from kauldron_core.packs.rules.population import Population
from kauldron_core.packs.rules.rule import Rule
from kauldron_core.packs.running.evaluation import evaluate_stacked
from kauldron_core.packs.running.members import Inherited, MemberEvent
from kauldron_core.packs.running.training import Packed, iter_train, train

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
