"""Transforms of which entries an example has, and what they are called."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from kauldron_core.data.transforms.base import MapTransform, check_free, check_present
from kauldron_core.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Elements(MapTransform):
    """Keeps or drops entries, renames and copies them.

    An entry that is named and missing, or that would be overwritten, is a KeyError.

    Attributes:
      keep: Entries to keep, the others go, except renamed and copied ones.
      drop: Entries that go.
      rename: New names by old ones.
      copy: Names of copies by the entry to copy.
    """

    is_selection: ClassVar[bool] = True

    keep: Collection[str] = ()
    drop: Collection[str] = ()
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    copy: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name in ("keep", "drop"):
            names = getattr(self, name)
            object.__setattr__(self, name, (names,) if isinstance(names, str) else tuple(names))
        if self.keep and self.drop:
            raise ConfigError("Elements takes keep or drop, not both.")
        self._check_disjoint("keep", self.keep, "rename", [*self.rename, *self.rename.values()])
        self._check_disjoint("drop", self.drop, "rename", self.rename)
        written = [*self.rename.values(), *self.copy.values()]
        if len(set(written)) < len(written):
            raise KeyError(f"Elements: two entries would get one name, among {sorted(written)}.")

    def _check_disjoint(self, name: str, keys: Collection[str], other_name: str, other_keys: Collection[str]) -> None:
        both = sorted(set(keys) & set(other_keys))
        if both:
            raise KeyError(f"Elements: {both} stand in both {name} and {other_name}.")

    def map(self, element: Mapping[str, Any]) -> dict[str, Any]:
        for key in (*self.keep, *self.drop, *self.rename, *self.copy):
            check_present(key, element, "Elements")
        kept = {key: value for key, value in element.items() if self._is_kept(key)}
        for mapping, occupied in ((self.copy, element), (self.rename, kept)):
            for read, written in mapping.items():
                check_free(written, occupied, "Elements")
                kept[written] = element[read]
        return kept

    def _is_kept(self, key: str) -> bool:
        if key in self.rename or key in self.drop:
            return False
        return not self.keep or key in self.keep

    def map_batch(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        return self.map(batch)


@dataclasses.dataclass(frozen=True)
class Rename(MapTransform):
    """Renames entries, all others stay.

    Attributes:
      names: New names by old ones.
    """

    is_selection: ClassVar[bool] = True

    names: Mapping[str, str]

    def map(self, element: Mapping[str, Any]) -> dict[str, Any]:
        return Elements(rename=self.names).map(element)

    def map_batch(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        return self.map(batch)


@dataclasses.dataclass(frozen=True)
class AddConstants(MapTransform):
    """Adds entries that are the same in every example, where mixed data sets differ in their entries.

    Attributes:
      values: The entries.
    """

    values: Mapping[str, Any]

    def map(self, element: Mapping[str, Any]) -> dict[str, Any]:
        for key in self.values:
            check_free(key, element, "AddConstants")
        return {**element, **self.values}
