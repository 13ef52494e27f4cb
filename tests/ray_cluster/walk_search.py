"""A searcher of one's own that can't be told of points that others have made."""

from __future__ import annotations

import math
from typing import Any

from ray.tune.search import Searcher


class Walk(Searcher):
    """Each point is a step from the best so far."""

    def __init__(self) -> None:
        super().__init__()
        self._number, self._best, self._open = 0, (0, math.inf), dict[str, int]()

    def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:
        self._metric = metric
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self._number += 1
        self._open[trial_id] = (self._best[0] + 7 * self._number) % 100
        return {"seed": self._open[trial_id]}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        at = self._open.pop(trial_id)
        if result:
            self._best = min(self._best, (at, result[self.metric]), key=lambda pair: pair[1])

    def save(self, checkpoint_path: str) -> None: ...

    def restore(self, checkpoint_path: str) -> None: ...
