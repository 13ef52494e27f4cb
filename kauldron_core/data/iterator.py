"""Iterators over batches that can be saved and put back."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from typing import Any

from kauldron_core.errors import ConfigError

STATE_VERSION = 1

Feed = Callable[[int], Iterator[Any]]


class DataIterator(abc.ABC):
    """Yields batches. `set_state(get_state())` on a new iterator of the same pipeline gives the very next batch.

    The state is a small dictionary that JSON can carry. It tells which batches were handed out, not what was read
    ahead, so it is right at any moment between two calls of `next`.
    """

    def __iter__(self) -> DataIterator:
        return self

    @abc.abstractmethod
    def __next__(self) -> Any: ...

    @abc.abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Returns the position after the last batch handed out."""

    @abc.abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from `state`.

        Raises:
          ConfigError: If `state` was saved by a pipeline whose order differs.
        """

    def close(self) -> None:  # noqa: B027  (nothing to end is a valid answer)
        """Ends threads and processes. The iterator yields nothing afterwards; its state can still be read."""


class ScheduledIterator(DataIterator):
    """Iterates over batches that are a pure function of their number.

    Args:
      feed: Returns an iterator of the batches from the given number on.
      num_batches: Where to stop, None for never.
      order: What the order of the examples depends on. It is saved with the position, and a pipeline that differs
        in it refuses the state.
    """

    def __init__(self, feed: Feed, *, num_batches: int | None, order: dict[str, Any]):
        self._open = feed
        self._num_batches = num_batches
        self._order = order
        self._next_batch = 0
        self._feed: Iterator[Any] | None = None
        self._is_closed = False

    def __next__(self) -> Any:
        if self._is_closed or (self._num_batches is not None and self._next_batch >= self._num_batches):
            self._end_feed()
            raise StopIteration
        if self._feed is None:
            self._feed = self._open(self._next_batch)
        batch = next(self._feed)
        self._next_batch += 1
        return batch

    def get_state(self) -> dict[str, Any]:
        return {"version": STATE_VERSION, "next_batch": self._next_batch, "order": dict(self._order)}

    def set_state(self, state: dict[str, Any]) -> None:
        check_version(state)
        check_order(state["order"], self._order)
        self._end_feed()
        self._next_batch = state["next_batch"]

    def close(self) -> None:
        self._is_closed = True
        self._end_feed()

    def _end_feed(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None and hasattr(feed, "close"):
            feed.close()  # pyright: ignore[reportAttributeAccessIssue]


def check_version(state: dict[str, Any]) -> None:
    """Raises ConfigError unless this version of the package wrote `state`, or one compatible with it."""
    if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
        raise ConfigError(f"not a state of a data iterator of this version ({STATE_VERSION}): {str(state)[:80]}.")


def check_order(saved: dict[str, Any], current: dict[str, Any]) -> None:
    """Raises ConfigError if what the order depends on is not what it was when a state was saved."""
    for name in [*current, *(saved.keys() - current.keys())]:
        if saved.get(name) != current.get(name):
            raise ConfigError(
                f"the data iterator was saved with {name}={saved.get(name)!r} and the pipeline has "
                f"{name}={current.get(name)!r}: its next batch cannot be the one that followed."
            )
