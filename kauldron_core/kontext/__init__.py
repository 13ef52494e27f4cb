"""Wiring: paths into nested trees, and keys that name the values a function takes from them."""

from kauldron_core.kontext.builder import path_builder_from
from kauldron_core.kontext.filters import filter_by_path
from kauldron_core.kontext.flatten import flatten_with_path
from kauldron_core.kontext.glob import GlobPath, set_by_path
from kauldron_core.kontext.keys import REQUIRED, Key, KeyTree, get_keypaths, is_key_annotated
from kauldron_core.kontext.lookup import PathLookupError
from kauldron_core.kontext.path import Context, Path, get_by_path
from kauldron_core.kontext.resolve import resolve_from_keyed_obj, resolve_from_keypaths

__all__ = [
    "Context",
    "GlobPath",
    "Key",
    "KeyTree",
    "Path",
    "PathLookupError",
    "REQUIRED",
    "filter_by_path",
    "flatten_with_path",
    "get_by_path",
    "get_keypaths",
    "is_key_annotated",
    "path_builder_from",
    "resolve_from_keyed_obj",
    "resolve_from_keypaths",
    "set_by_path",
]
