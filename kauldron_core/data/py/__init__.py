"""Pipelines read by Python: any random-access source, files of records, mixtures."""

from kauldron_core.data.py.array_record import ArrayRecord
from kauldron_core.data.py.data_source import DataSource
from kauldron_core.data.py.image_folder import ImageFolder
from kauldron_core.data.py.json_lines import JsonLines
from kauldron_core.data.py.mix import Mix
from kauldron_core.data.py.tables import Arrow, Parquet

__all__ = ["ArrayRecord", "Arrow", "DataSource", "ImageFolder", "JsonLines", "Mix", "Parquet"]
