"""How much a config holds when its references are followed: a few lines of a file can stand for more than memory."""

from __future__ import annotations

from typing import Any

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.tree.evaluate import Evaluation
from kauldron_core.konfig.tree.nodes import is_node, is_sequence
from kauldron_core.konfig.tree.references import PathRef
from kauldron_core.konfig.tree.walking import entries

MAX_VALUES = 1_000_000


def check_size(root: Any, evaluation: Evaluation, *, is_shared: bool) -> None:
    """Refuses a config that holds more than `MAX_VALUES` values; in a time that goes with what is written.

    Args:
      root: The config.
      evaluation: What follows its references.
      is_shared: Whether a node that several places hold counts once, as it does where it is built once.

    Raises:
      ConfigError: With the path of the first place that holds too many.
    """
    _Count(evaluation, is_shared=is_shared).of(root, ())


class _Count:
    """The number of values below lists and nodes, each counted once."""

    def __init__(self, evaluation: Evaluation, *, is_shared: bool) -> None:
        self._evaluation = evaluation
        self._is_shared = is_shared
        self._known: dict[int, int] = {}
        self._kept: list[Any] = []

    def of(self, value: Any, path: tuple[Any, ...]) -> int:
        if type(value) is PathRef:
            try:
                value = self._evaluation.value(value)
            except Exception:  # Whatever is wrong with it is told where it is read.
                return 1
        if not is_node(value) and not is_sequence(value):
            return 1
        if id(value) in self._known:
            return 1 if is_node(value) and self._is_shared else self._known[id(value)]
        self._kept.append(value)  # As long as its id stands for it.
        self._known[id(value)] = 1  # A circle; it is found where it is read.
        count = sum(self.of(item, (*path, key)) for key, item in entries(value))
        if count > MAX_VALUES:
            raise ConfigError(
                f"{paths.join('cfg', *path)}: holds more than {MAX_VALUES:,} values when its references are followed."
                " Refer to each list fewer times, or build the value in a function that the config names."
            )
        self._known[id(value)] = count
        return count
