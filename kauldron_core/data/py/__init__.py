"""Pipelines read by Python: any random-access source, files of records, mixtures."""

from kauldron_core.data.py.data_source import DataSource
from kauldron_core.data.py.mix import Mix

__all__ = ["DataSource", "Mix"]
