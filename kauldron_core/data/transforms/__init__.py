"""Steps that examples go through, as config entries."""

from kauldron_core.data.transforms.base import (
    ElementWiseRandomTransform,
    ElementWiseTransform,
    Filter,
    MapTransform,
    RandomMapTransform,
)
from kauldron_core.data.transforms.elements import AddConstants, Elements, Rename
from kauldron_core.data.transforms.images import CenterCrop, RandomCrop, RandomFlipLeftRight, Resize
from kauldron_core.data.transforms.sequences import Pack, Pad, Tokenize, Truncate
from kauldron_core.data.transforms.values import Cast, Gather, OneHot, Rearrange, ValueRange

__all__ = [
    "AddConstants",
    "Cast",
    "CenterCrop",
    "ElementWiseRandomTransform",
    "ElementWiseTransform",
    "Elements",
    "Filter",
    "Gather",
    "MapTransform",
    "OneHot",
    "Pack",
    "Pad",
    "RandomCrop",
    "RandomFlipLeftRight",
    "RandomMapTransform",
    "Rearrange",
    "Rename",
    "Resize",
    "Tokenize",
    "Truncate",
    "ValueRange",
]
