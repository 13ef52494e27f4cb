"""Synchronous successive halving: the budget of a pack goes to its best trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from kauldron_core.errors import ConfigError
from kauldron_core.packs.rules.rule import Decision, Point, Rule, check_positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Halving(Rule):
    """At the rungs `min_steps * eta**k` the best 1/eta of the trials that still train go on; the others are pruned.

    All trials reach a rung together, so none is judged by less than all the others of its rung. Those that diverged are
    out before. The pack is made smaller at each rung.

    Source: successive halving, Jamieson and Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter
    Optimization, AISTATS 2016, with the eta of Hyperband (Li et al., JMLR 2018, Algorithm 1: of n_i trials the best
    floor(n_i / eta) go on, with eta times the budget). At least one always goes on.

    Attributes:
      eta: One of so many trials goes on.
      min_steps: The first rung.
    """

    eta: int = 3
    min_steps: int

    def __post_init__(self):
        super().__post_init__()
        check_positive(min_steps=self.min_steps)
        if not isinstance(self.eta, int) or self.eta < 2:
            raise ConfigError(f"rule.eta: must be an integer above 1, not {self.eta!r}.")

    def is_due(self, step: int) -> bool:
        rung = self.min_steps
        while rung < step:
            rung *= self.eta
        return rung == step

    def decide(
        self, step: int, scores: Mapping[int, float], points: Mapping[int, Point], first: Mapping[int, Point]
    ) -> Decision:
        ranked = self.ranked(scores)
        num_kept = max(len(ranked) // self.eta, 1)
        pruned = {
            index: f"rung at step {step}: {self.metric} {scores[index]:.6g} was place {place} of {len(ranked)}, "
            f"and {num_kept} went on"
            for place, index in enumerate(ranked, start=1)
            if place > num_kept
        }
        return Decision(pruned=pruned)
