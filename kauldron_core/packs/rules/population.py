"""Synchronous population based training: bad trials go on from good ones, with other numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.packs.rules.rule import Decision, Inheritance, Point, Rule, check_positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Population(Rule):
    """Every so many steps the worst trials take over what the best have learned, and try other numbers with it.

    All trials reach such a step together. What is drawn depends on `seed`, the step and the trial alone, so a pack that
    was cut off goes on to the same numbers.

    Source: Jaderberg et al., Population Based Training of Neural Networks, 2017, arXiv:1711.09846, section 4.1. Exploit
    is its truncation selection: a trial of the bottom quantile copies weights, optimizer state and numbers of one drawn
    uniformly from the top quantile. Explore: each number is multiplied by one of two factors, or drawn anew from its
    first distribution.

    Attributes:
      every: Steps between two exchanges.
      quantile: The part of the trials that is bottom, and the part that is top; at least one trial each.
      perturb: The factors.
      resample_probability: How probable it is that a number is drawn anew instead: from `bounds` (log-uniformly where
        both are positive), or from the numbers with which the trials began.
      paths: The numbers that may change, by their paths in the config; None: the floats in which the trials differ.
      bounds: Least and greatest value by path.
      seed: Of what is drawn.
    """

    every: int
    quantile: float = 0.25
    perturb: Sequence[float] = (0.8, 1.2)
    resample_probability: float = 0.25
    paths: Sequence[str] | None = None
    bounds: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        check_positive(every=self.every)
        if not 0 < self.quantile <= 0.5:
            raise ConfigError(f"rule.quantile: must be above 0 and at most 0.5, not {self.quantile}.")
        if not 0 <= self.resample_probability <= 1:
            raise ConfigError(f"rule.resample_probability: must be from 0 to 1, not {self.resample_probability}.")
        if not self.perturb:
            raise ConfigError("rule.perturb: there is no factor.")
        for path, pair in self.bounds.items():
            if not isinstance(pair, Sequence) or len(pair) != 2:
                raise ConfigError(f"rule.bounds.{path}: must be a pair, the least and the greatest value: {pair!r}.")
            low, high = pair
            if not low < high:
                raise ConfigError(f"rule.bounds.{path}: {low} is not below {high}.")

    def is_due(self, step: int) -> bool:
        return step > 0 and step % self.every == 0

    def paths_in(self, candidates: Sequence[str]) -> tuple[str, ...]:
        found = tuple(candidates if self.paths is None else self.paths)
        if not found:
            raise ConfigError("rule.paths: the trials differ in no float that could be changed. Name some.")
        for path in self.bounds:
            if path not in found:
                raise ConfigError(unknown_name("path", path, found, at="rule.bounds"))
        return found

    def decide(
        self, step: int, scores: Mapping[int, float], points: Mapping[int, Point], first: Mapping[int, Point]
    ) -> Decision:
        ranked = self.ranked(scores)
        count = min(max(int(len(ranked) * self.quantile), 1), len(ranked) // 2)
        top = [index for index in ranked[:count] if math.isfinite(scores[index])]
        inherits = {}
        for index in sorted(ranked[len(ranked) - count :]) if top else ():
            generator = np.random.default_rng([self.seed, step, index])
            donor = top[generator.integers(len(top))]
            point = {path: self._explored(path, value, first, generator) for path, value in points[donor].items()}
            inherits[index] = Inheritance(donor, point)
        return Decision(inherits=inherits)

    def _explored(self, path: str, value: float, first: Mapping[int, Point], generator: np.random.Generator) -> float:
        is_new, factor = generator.random() < self.resample_probability, generator.choice(np.asarray(self.perturb))
        low, high = self.bounds.get(path, (-math.inf, math.inf))
        if not is_new:
            return float(min(max(value * factor, low), high))
        if path not in self.bounds:
            return float(generator.choice([point[path] for _, point in sorted(first.items())]))
        if low > 0:
            return float(math.exp(generator.uniform(math.log(low), math.log(high))))
        return float(generator.uniform(low, high))
