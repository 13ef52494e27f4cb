"""Pipelines read by Python: any random-access source, files of records, mixtures."""

from kauldron_core.data.py.data_source import DataSource

__all__ = ["DataSource"]
