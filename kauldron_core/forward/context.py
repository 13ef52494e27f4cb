"""Everything known while a step runs. The key paths of models, losses and metrics point into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import flax.struct


@flax.struct.dataclass
class Context:
    """What key paths such as `batch.image`, `preds.logits`, `grads.Dense_0.kernel` can reach.

    The fields are filled in this order; a field is None where it does not exist yet, or does not exist at all
    (`grads` in an evaluation).

    Attributes:
      step: Updates made before this step.
      batch: The batch as the pipeline yields it.
      params: Parameters of the model, before the update.
      collections: Other variables of the model, after the forward pass.
      preds: What the model returned.
      interms: What its layers returned, `interms.encoder.__call__[0]`. Recorded only if a key asks for it.
      loss_states: State of each loss by name.
      loss_total: The weighted sum that is minimised, a scalar.
      grads: Gradient of `loss_total`, shaped like `params`.
      updates: What the optimizer made of it.
      opt_state: State of the optimizer, after the update.
      metric_states: State of each metric by name.
      summary_states: State of each summary by name.
    """

    step: Any = None
    batch: Any = None
    params: Any = None
    collections: Any = None
    preds: Any = None
    interms: Any = None
    loss_states: Any = None
    loss_total: Any = None
    grads: Any = None
    updates: Any = None
    opt_state: Any = None
    metric_states: Any = None
    summary_states: Any = None

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self:
            """Returns a copy with some fields changed."""
            ...
