"""Sweeps as data: axes and how they combine, the trials they make, and the files that say so."""

from kauldron_core.sweeps.axes import Axis, Points, RandomAxis, axis, chain, from_points, num_points, product, zip_axes
from kauldron_core.sweeps.axis_text import from_strings, parse_axes, parse_axis
from kauldron_core.sweeps.config_file import ConfigFile, load_config_file, read_trials
from kauldron_core.sweeps.trials import Trial, configs, expand

__all__ = [
    "Axis",
    "ConfigFile",
    "Points",
    "RandomAxis",
    "Trial",
    "axis",
    "chain",
    "configs",
    "expand",
    "from_strings",
    "from_points",
    "load_config_file",
    "num_points",
    "parse_axes",
    "parse_axis",
    "product",
    "read_trials",
    "zip_axes",
]
