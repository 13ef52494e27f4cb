"""What an evaluation keeps of each example, besides the numbers over all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core import kontext
from kauldron_core import losses as losses_lib
from kauldron_core import metrics as metrics_lib
from kauldron_core.forward import Context


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerExample:
    """Asks an evaluator for a row an example: `Evaluator(per_example=PerExample(target="batch.label"), ...)`.

    The rows are the `examples` of the result; a stand-alone evaluation writes them as Parquet beside its record.

    Attributes:
      id: Key of what identifies an example, texts too. Unset, it is the example's place in the data, counted from 0.
      prediction: Key of the prediction; None leaves it out.
      target: Key of the target; None leaves it out.
      losses: Whether to keep each loss of the example, weighted as in the total, and their sum.
    """

    id: str | None = None
    prediction: kontext.Key | None = "preds"
    target: kontext.Key | None = None
    losses: bool = True

    def outputs(self, losses: Mapping[str, Any], context: Context, num_rows: int) -> dict[str, Any]:
        """Returns arrays with a row for each row of the batch of `context`. Traced."""
        keys = {"prediction": self.prediction, "target": self.target}
        outputs = {name: kontext.get_by_path(context, key) for name, key in keys.items() if key is not None}
        if self.losses:
            masks = jnp.eye(num_rows, dtype=bool)
            for name, loss in losses_lib.named_losses(losses):
                # One that has no values of its own for each example is none of the example's.
                if metrics_lib.accepts_padding(loss, context, masks[0]):
                    outputs[f"losses/{name}"] = _row_losses(loss, context, masks)
        return outputs

    def rows(self, outputs: Mapping[str, Any], batch: Any, *, places: np.ndarray, mask: Any) -> list[dict[str, Any]]:
        """Returns the rows of the examples of a batch.

        Args:
          outputs: What `outputs` gave, on the host.
          batch: The batch.
          places: int[batch], where the examples stand in the data.
          mask: bool[batch], which rows are examples; None if all are.
        """
        ids = places if self.id is None else np.asarray(kontext.get_by_path({"batch": batch}, self.id))
        chosen = np.arange(len(places)) if mask is None else np.flatnonzero(mask)
        found = []
        for row in chosen.tolist():
            example = {"id": _plain(ids[row])}
            example |= {name: jax.tree.map(lambda leaf, row=row: _plain(leaf[row]), outputs[name]) for name in outputs}
            losses = [value for name, value in example.items() if name.startswith("losses/")]
            found.append({**example, "losses/total": sum(losses)} if losses else example)
        return found


def without_texts(batch: Any) -> Any:
    """Returns `batch` without what only the host can hold: texts and Python objects."""
    if not isinstance(batch, Mapping) or not any(map(_is_text, batch.values())):
        return batch
    return {name: value for name, value in batch.items() if not _is_text(value)}


def _is_text(value: Any) -> bool:
    return hasattr(value, "dtype") and value.dtype.kind in "OSUT"


def _row_losses(loss: Any, context: Context, masks: jax.Array) -> jax.Array:
    """Returns the loss of each row: that of a batch in which all others are padding."""

    def of_row(mask: jax.Array) -> Any:
        state = loss.get_state_from_context(context, padding_mask=mask)
        return state.total / jnp.maximum(state.count, jnp.finfo(jnp.float32).tiny)

    return jax.vmap(of_row)(masks)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim:
        return value
    return value.item() if hasattr(value, "item") else value
