"""`GlobalNorm`: the norm of a whole tree, and how often it was too big."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.metrics.auto_state import AutoState
from kauldron_core.metrics.fields import sum_field
from kauldron_core.metrics.metric import Metric
from kauldron_core.metrics.shapes import as_float


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlobalNorm(Metric):
    """The Euclidean norm of all arrays of a tree together; with `max_norm` also the share of steps above it.

        cfg.train_metrics["grads"] = kd.metrics.GlobalNorm(tree="grads", max_norm=1.0)

    Beside an `optax.clip_by_global_norm` with the same number it tells how often that one clips.

    Attributes:
      tree: Any tree of arrays.
      max_norm: Above it a step counts as clipped; None asks for the norm alone.
    """

    tree: kontext.Key = kontext.REQUIRED
    max_norm: float | None = None

    @flax.struct.dataclass
    class State(AutoState["GlobalNorm"]):
        """Sums over steps."""

        norm: Any = sum_field()
        clipped: Any = sum_field()
        count: Any = sum_field()

        def compute(self) -> Any:
            """Returns the mean norm, or `{'norm': ..., 'clipped': share of steps}`."""
            sums = super().compute()
            metric: Any = self.parent
            if metric.max_norm is None:
                return sums.norm / sums.count
            return {"norm": sums.norm / sums.count, "clipped": sums.clipped / sums.count}

    def get_state(self, tree: Any) -> State:
        """Returns the norm of one step."""
        squares = (jnp.sum(jnp.square(as_float(leaf))) for leaf in jax.tree.leaves(tree))
        norm = jnp.sqrt(sum(squares, start=jnp.zeros(())))
        is_clipped = jnp.zeros(()) if self.max_norm is None else (norm > self.max_norm).astype(jnp.float32)
        return self.State(norm=norm, clipped=is_clipped, count=jnp.ones(()))
