"""Data opened once and shared by every pipeline that reads the same."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, ClassVar


class Shared:
    """A value that is made on first use.

    Pipelines are frozen, and a variant (`take`, `for_eval`, another seed) is a new object. All variants hold the same
    `Shared`, so a loader runs once for all of them; with the last of them the data is freed.
    """

    _living: ClassVar[weakref.WeakValueDictionary[Hashable, Shared]] = weakref.WeakValueDictionary()
    _living_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self):
        self._lock = threading.Lock()
        self._is_made = False
        self._value: Any = None

    @classmethod
    def under(cls, key: Hashable) -> Shared:
        """Returns the `Shared` of `key`, a new one if none is alive."""
        with cls._living_lock:
            found = cls._living.get(key)
            if found is None:
                found = cls._living[key] = cls()
            return found

    def get(self, make: Callable[[], Any]) -> Any:
        """Returns the value, made by `make` if this is the first call. An exception of `make` leaves it unmade."""
        with self._lock:
            if not self._is_made:
                self._value = make()
                self._is_made = True
            return self._value


class SameObject:
    """A key that stands for one object, and keeps it alive so that no other takes its place."""

    def __init__(self, target: object):
        self._target = target

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameObject) and self._target is other._target

    def __hash__(self) -> int:
        return id(self._target)
