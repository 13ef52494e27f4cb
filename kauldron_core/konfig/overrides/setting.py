"""Sets values, as Python has them, at the places that paths name; each is checked as an override's text would be."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.calls import hints
from kauldron_core.konfig.calls.hints import Misfit
from kauldron_core.konfig.json.encoding import encode
from kauldron_core.konfig.overrides.places import Place, Saved, find_place
from kauldron_core.konfig.overrides.refusal import refusal

Values: TypeAlias = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Values by path, what holds another before it."""


def with_values(cfg: Any, values: Values, *, flag: str = "--cfg.", is_fitted: bool = False) -> Any:
    """Returns a copy of `cfg` with other values at some paths.

    Args:
      cfg: The config.
      values: Values by path.
      flag: What stands before the path on the command line, for messages.
      is_fitted: Whether a config took the values before. They are not fitted again: what an argument may be is known
        only where its module is imported, and a config read from disk imports none.

    Raises:
      ConfigError: When a path does not exist, or a value does not fit there.
    """
    changed = copy.deepcopy(cfg)
    for path, value in _pairs(values):
        place = find_place(changed, path, flag=flag)
        # A copy, since a later value may reach into it.
        own = copy.deepcopy(value)
        place.set(own if is_fitted else _fitted(place, own))
    return changed


def fingerprint(cfg: Any, *, without: Iterable[str] = ()) -> str:
    """Returns a text that is equal for configs that describe the same: references read, the order of keys ignored.

    Args:
      cfg: The config.
      without: Paths of leaves whose values make no difference.
    """
    if without := tuple(without):
        cfg = copy.deepcopy(cfg)
        for path in without:
            place = find_place(cfg, path)
            place.set(type(place.slot.current)(0))
    body = encode(cfg, references=False, sort=True)
    text = json.dumps(body, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Applied:
    """Sets values in a config for the length of a with block, then brings back what was there.

    Args:
      cfg: The config.
      values: Values by path.
      flag: What stands before the path on the command line, for messages.
      is_fitted: Whether the config took the values before, as for `with_values`.
    """

    def __init__(self, cfg: Any, values: Values, *, flag: str = "--cfg.", is_fitted: bool = False) -> None:
        self._cfg, self._values, self._flag, self._is_fitted = cfg, values, flag, is_fitted
        self._saved: list[Saved] = []
        self.fitted: tuple[tuple[str, Any], ...] = ()
        """The values as the config takes them."""

    def __enter__(self) -> Any:
        try:
            self.fitted = tuple((path, self._apply(path, value)) for path, value in _pairs(self._values))
        except BaseException:
            self.__exit__()
            raise
        return self._cfg

    def __exit__(self, *error: object) -> None:
        while self._saved:
            self._saved.pop().restore()

    def _apply(self, path: str, value: Any) -> Any:
        place = find_place(self._cfg, path, flag=self._flag)
        fitted = value if self._is_fitted else _fitted(place, value)
        self._saved.append(place.saved())
        place.set(fitted)
        return fitted


def _pairs(values: Values) -> Iterable[tuple[str, Any]]:
    return cast("Mapping[str, Any]", values).items() if isinstance(values, Mapping) else values


def _fitted(place: Place, value: Any) -> Any:
    try:
        return place.slot.fit(value)
    except Misfit as misfit:
        what = f"expected {misfit}, got {hints.kind_of(value)}"
        raise ConfigError(refusal(place.slot.at, what)) from None
