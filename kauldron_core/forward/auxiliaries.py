"""Losses and metrics of a step, as states that merge across steps, batches and hosts."""

from __future__ import annotations

import functools
import logging
from collections.abc import Container, Iterator, Mapping
from typing import Any

import flax.struct
import jax
import numpy as np

from kauldron_core import metrics as metrics_lib
from kauldron_core.data import PADDING_MASK
from kauldron_core.forward.context import Context
from kauldron_core.losses import loss_totals

_MAX_ENTRIES = 16
_logger = logging.getLogger(__name__)


@flax.struct.dataclass
class AuxiliariesState:
    """The states of every loss and metric over the examples seen.

    Attributes:
      loss_states: State of each loss by name.
      metric_states: State of each metric by name.
      summary_states: State of each summary by name.
    """

    loss_states: Mapping[str, Any] = flax.struct.field(default_factory=dict)
    metric_states: Mapping[str, Any] = flax.struct.field(default_factory=dict)
    summary_states: Mapping[str, Any] = flax.struct.field(default_factory=dict)

    def merge(self, other: AuxiliariesState) -> AuxiliariesState:
        """Returns the states over the examples of both. A name that one side lacks is taken from the other."""
        return AuxiliariesState(
            loss_states=_merge(self.loss_states, other.loss_states),
            metric_states=_merge(self.metric_states, other.metric_states),
            summary_states=_merge(self.summary_states, other.summary_states),
        )

    def to_host(self) -> AuxiliariesState:
        """Returns the same states with NumPy leaves of full width, in which counts stay exact. Waits for the device."""
        return metrics_lib.to_host(self)

    def without(self, *, losses: Container[str] = (), metrics: Container[str] = ()) -> AuxiliariesState:
        """Returns the states but for those named."""
        return AuxiliariesState(
            loss_states={name: state for name, state in self.loss_states.items() if name not in losses},
            metric_states={name: state for name, state in self.metric_states.items() if name not in metrics},
            summary_states=self.summary_states,
        )

    def compute(self, *, or_nan: bool = False) -> dict[str, Any]:
        """Returns `losses/total`, `losses/<group>`, `losses/<name>` and `metrics/<name>`. Outside jit.

        Args:
          or_nan: Whether what no example counted for is NaN, a total with it too. Else it is what its state says, 0 for
            most: the best loss there is.
        """
        compute = _compute_or_nan if or_nan else _compute
        # The mean is linear: over merged states the sum of means is the mean of the sums.
        losses = loss_totals(self.loss_states, compute) if self.loss_states else {}
        losses |= {name: compute(state) for name, state in self.loss_states.items()}
        values = {f"losses/{name}": value for name, value in losses.items()}
        return values | {f"metrics/{name}": compute(state) for name, state in self.metric_states.items()}

    def scalars(self, *, or_nan: bool = False) -> dict[str, float]:
        """Returns what `compute` gives as numbers: a metric of several values as `metrics/<name>/<part>`.

        The parts of a mapping go by their keys, those of sequences and small arrays by their indices:
        `metrics/recall/0`. Arrays of more than 16 entries are left out, with a warning; `compute` has them.

        Args:
          or_nan: As in `compute`.
        """
        return dict(_scalars(self.compute(or_nan=or_nan)))

    def empty_names(self) -> list[str]:
        """Returns the losses and metrics for which no example counted. Outside jit."""
        states = {f"losses/{name}": state for name, state in self.loss_states.items()}
        states |= {f"metrics/{name}": state for name, state in self.metric_states.items()}
        return [name for name, state in states.items() if _has_nothing(state)]


def collect_metrics(metrics: Mapping[str, Any], context: Context, *, padding_mask: Any = None) -> dict[str, Any]:
    """Returns the state of each metric over the batch of `context`. Traced."""
    return {
        name: metric.get_state_from_context(context, padding_mask=padding_mask if metric.takes_mask else None)
        for name, metric in metrics.items()
    }


def padding_mask_of(batch: Any) -> Any:
    """Returns the bool[B] mask that tells examples from padding, or None for a batch that was not padded."""
    return batch.get(PADDING_MASK) if isinstance(batch, Mapping) else None


def _compute(state: Any) -> Any:
    return state.compute()


def _compute_or_nan(state: Any) -> Any:
    return state.compute_or_nan() if isinstance(state, metrics_lib.State) else state.compute()


def _has_nothing(state: Any) -> bool:
    """Returns whether a state should have a value and no example counted for it."""
    return isinstance(state, metrics_lib.State) and state.is_empty() and bool(jax.tree.leaves(state.compute_or_nan()))


def _merge(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: left[name].merge(right[name]) for name in left if name in right}
    return {**left, **right, **both}


def _scalars(values: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    if hasattr(values, "_asdict"):
        values = values._asdict()
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from _scalars(value, f"{prefix}/{name}" if prefix else str(name))
    elif isinstance(values, list | tuple):
        for index, value in enumerate(values):
            yield from _scalars(value, f"{prefix}/{index}")
    elif np.issubdtype(np.asarray(values).dtype, np.number):
        yield from _entries(np.asarray(values), prefix)


def _entries(array: np.ndarray, prefix: str) -> Iterator[tuple[str, float]]:
    if array.size > _MAX_ENTRIES:
        _leave_out(prefix, array.shape)
        return
    for index, value in np.ndenumerate(array):
        yield "/".join([prefix, *map(str, index)]), float(value)


@functools.cache
def _leave_out(name: str, shape: tuple[int, ...]) -> None:
    """Says, once, that a large array is no metric."""
    _logger.warning("%s: an array of shape %s is not recorded, at most %d entries are.", name, shape, _MAX_ENTRIES)
