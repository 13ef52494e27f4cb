"""What training and evaluation share: the state, the context, random streams, the forward pass, auxiliary outputs."""

from kauldron_core.forward.auxiliaries import AuxiliariesState, collect_metrics, padding_mask_of
from kauldron_core.forward.blueprint import Blueprint, as_arguments
from kauldron_core.forward.context import Context
from kauldron_core.forward.health import Health, good_health, health_after
from kauldron_core.forward.model import ForwardPass, reads
from kauldron_core.forward.precision import Precision
from kauldron_core.forward.rngs import RngStream, RngStreams
from kauldron_core.forward.state import TrainState

__all__ = [
    "AuxiliariesState",
    "Blueprint",
    "Context",
    "ForwardPass",
    "Health",
    "Precision",
    "RngStream",
    "RngStreams",
    "TrainState",
    "collect_metrics",
    "as_arguments",
    "good_health",
    "health_after",
    "padding_mask_of",
    "reads",
]
