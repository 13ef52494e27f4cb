"""Flax layers that a config can name, and the switch between training and evaluation (`kd.nn`)."""

from kauldron_core.modules.mlp import MLP
from kauldron_core.modules.mode import Dropout, set_train_property, train_property

__all__ = ["MLP", "Dropout", "set_train_property", "train_property"]
