"""Optimizers for parts of the parameters, averages of them, and schedules by name; they compose with Optax."""

from kauldron_core.optim.chain import named_chain
from kauldron_core.optim.counts import count_of, held_by
from kauldron_core.optim.decay import DecayToInitState, decay_to_init
from kauldron_core.optim.ema import EmaParamsState, UseEmaParams, ema_params
from kauldron_core.optim.masks import exclude, select
from kauldron_core.optim.multi import MultiOptimizer, Part
from kauldron_core.optim.partial import partial_updates
from kauldron_core.optim.schedules import Schedule

__all__ = [
    "DecayToInitState",
    "EmaParamsState",
    "MultiOptimizer",
    "Part",
    "Schedule",
    "UseEmaParams",
    "count_of",
    "decay_to_init",
    "ema_params",
    "exclude",
    "held_by",
    "named_chain",
    "partial_updates",
    "select",
]
