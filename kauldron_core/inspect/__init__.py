"""Looking at an experiment before it trains: its data, its parameters, what keys can reach, what a step costs."""

from kauldron_core.inspect.batch_stats import get_batch_stats
from kauldron_core.inspect.batch_view import BatchView, plot_batch
from kauldron_core.inspect.cost import StepCost, get_step_cost, lower_trainstep
from kauldron_core.inspect.parameters import get_param_overview
from kauldron_core.inspect.schedule_view import ScheduleView, plot_schedules
from kauldron_core.inspect.specs import json_spec_like
from kauldron_core.inspect.structure import context_specs, get_context_structure
from kauldron_core.inspect.table import Table

__all__ = [
    "BatchView",
    "ScheduleView",
    "StepCost",
    "Table",
    "context_specs",
    "get_batch_stats",
    "get_context_structure",
    "get_param_overview",
    "get_step_cost",
    "json_spec_like",
    "lower_trainstep",
    "plot_batch",
    "plot_schedules",
]
