"""The keys with a meaning of their own, in configs and in their files."""

from __future__ import annotations

from typing import Final

QUALNAME: Final = "__qualname__"
"""Names the callable that a node calls: `module:attribute`."""
CONST: Final = "__const__"
"""Names the object that a node stands for: `module:attribute`."""

# The rest only occurs in files, never as a key of a config.
ID: Final = "__id__"
REF: Final = "__ref__"
OP: Final = "__op__"
PLACEHOLDER: Final = "__placeholder__"
RAW: Final = "__raw__="
TUPLE: Final = "__tuple__"
SET: Final = "__set__"
FROZENSET: Final = "__frozenset__"
SLICE: Final = "__slice__"
ELLIPSIS: Final = "__ellipsis__"
BYTES: Final = "__bytes__"
COMPLEX: Final = "__complex__"
ENUM: Final = "__enum__"
PATH: Final = "__path__"
DTYPE: Final = "__dtype__"
SCALAR: Final = "__scalar__"
FLOAT: Final = "__float__"
UNSAVED: Final = "__unsaved__"
FORMAT: Final = "__konfig__"
