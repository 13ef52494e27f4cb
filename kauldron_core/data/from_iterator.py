"""`FromIterator`: examples that a user's iterator yields one after the other."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kauldron_core.data.sequential import SequentialPipeline
from kauldron_core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class FromIterator(SequentialPipeline):
    """Pipeline over examples that can only be read in the order in which they come.

    It resumes where a new iterator can be brought to the saved place: by the iterator itself if it has `get_state`
    and `set_state` (of something JSON can carry), else by reading up to there again if `is_replayable`. Without
    either a saved state is refused. Every host reads all examples and keeps its share.

    Attributes:
      source: Returns a new iterable of examples; called at the start of each epoch.
      is_replayable: Whether `source` gives the same examples whenever it is called.
    """

    source: Callable[[], Iterable[Any]]
    is_replayable: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.shuffle:
            raise ConfigError(f"{self} cannot shuffle what comes one after the other. Shuffle in the source.")

    @property
    def may_be_endless(self) -> bool:
        """Whether nothing says that what the source returns ends: an evaluation of it might never."""
        return self.num_epochs is None and self.max_batches is None

    def open_epoch(self, epoch: int) -> Iterator[Any]:
        del epoch
        return iter(self.source())

    def reopen_epoch(self, epoch: int, offset: int, state: Any) -> Iterator[Any]:
        source = iter(self.source())
        if state is not None and hasattr(source, "set_state"):
            source.set_state(state)  # pyright: ignore[reportAttributeAccessIssue]
        elif self.is_replayable:
            # Consumes so many examples.
            next(itertools.islice(source, offset, offset), None)
        else:
            raise ConfigError(
                f"{self} cannot be brought to epoch {epoch}, example {offset}: give the iterator get_state and "
                "set_state, or set is_replayable=True if the source repeats itself."
            )
        return source
