"""Data: pipelines that yield batches of arrays and remember where they are."""

from kauldron_core.data import py
from kauldron_core.data.from_iterator import FromIterator
from kauldron_core.data.host_shares import check_shares
from kauldron_core.data.in_memory import InMemoryPipeline
from kauldron_core.data.iterator import DataIterator
from kauldron_core.data.pipeline import PADDING_MASK, Pipeline
from kauldron_core.data.seqio_tasks import SeqIO
from kauldron_core.data.transforms import (
    AddConstants,
    Cast,
    CenterCrop,
    Elements,
    ElementWiseRandomTransform,
    ElementWiseTransform,
    Filter,
    Gather,
    MapTransform,
    OneHot,
    Pack,
    Pad,
    RandomCrop,
    RandomFlipLeftRight,
    RandomMapTransform,
    Rearrange,
    Rename,
    Resize,
    Tokenize,
    Truncate,
    ValueRange,
)

__all__ = [
    "AddConstants",
    "Cast",
    "CenterCrop",
    "DataIterator",
    "ElementWiseRandomTransform",
    "ElementWiseTransform",
    "Elements",
    "Filter",
    "FromIterator",
    "Gather",
    "InMemoryPipeline",
    "MapTransform",
    "OneHot",
    "PADDING_MASK",
    "Pack",
    "Pad",
    "Pipeline",
    "RandomCrop",
    "RandomFlipLeftRight",
    "RandomMapTransform",
    "Rearrange",
    "Rename",
    "Resize",
    "SeqIO",
    "Tokenize",
    "Truncate",
    "ValueRange",
    "check_shares",
    "py",
]
