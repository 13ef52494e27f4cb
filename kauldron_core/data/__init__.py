"""Data: pipelines that yield batches of arrays and remember where they are."""

from kauldron_core.data import py
from kauldron_core.data.in_memory import InMemoryPipeline
from kauldron_core.data.iterator import DataIterator
from kauldron_core.data.pipeline import PADDING_MASK, Pipeline

__all__ = [
    "DataIterator",
    "InMemoryPipeline",
    "PADDING_MASK",
    "Pipeline",
    "py",
]
