"""Which positions of the global example stream make up batch `k` on one host.

The stream is the data set shuffled and repeated. Batch `k` of the whole job is the positions
`k * batch_size ... (k + 1) * batch_size`, whatever the number of hosts; host `h` of `H` takes every `H`-th of them.
Sharding after shuffling and repeating keeps the hosts in step: all of them end after the same number of batches.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import sys
from typing import Literal

import numpy as np

from kauldron_core.errors import ConfigError

_logger = logging.getLogger(__name__)

Remainder = Literal["drop", "keep", "pad"]

_REMAINDERS: dict[object, Remainder] = {True: "drop", False: "keep", "drop": "drop", "keep": "keep", "pad": "pad"}


def remainder_mode(value: object) -> Remainder:
    """Returns the mode that a `batch_drop_remainder` value stands for.

    Raises:
      ConfigError: If `value` is none of True, 'drop', False, 'keep', 'pad'.
    """
    # Not `value in _REMAINDERS`: 1 and 0 are equal to True and False, and numbers are a mistake here.
    if isinstance(value, (bool, str)) and value in _REMAINDERS:
        return _REMAINDERS[value]
    raise ConfigError(f"batch_drop_remainder is {value!r}. Use True or 'drop', False or 'keep', or 'pad'.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSchedule:
    """The batches of one host.

    Attributes:
      num_examples: Examples in one epoch.
      num_epochs: Epochs, None for ever.
      batch_size: Examples in a batch over all hosts.
      remainder: What becomes of the examples that do not fill the last batch.
      shard_index: This host.
      shard_count: Hosts.
      max_batches: Stop after so many batches.
    """

    num_examples: int
    num_epochs: int | None
    batch_size: int
    remainder: Remainder
    shard_index: int = 0
    shard_count: int = 1
    max_batches: int | None = None

    def __post_init__(self):
        if self.num_examples < 1:
            raise ConfigError("the data set is empty: there is no example to make a batch of.")
        if self.batch_size % self.shard_count:
            raise ConfigError(
                f"batch_size={self.batch_size} is over all hosts and must be divisible by their number, "
                f"{self.shard_count}."
            )
        if not 0 <= self.shard_index < self.shard_count:
            raise ConfigError(f"shard_index={self.shard_index} is not one of 0 ... {self.shard_count - 1}.")
        self._check_remainder()
        if self.batch_size > self.num_examples and self.num_epochs != 1:
            _warn_of_doubles(self.batch_size, self.num_examples)

    def _check_remainder(self) -> None:
        if self.remainder != "pad" and self.shard_count > self.num_examples:
            raise ConfigError(
                f"{self.shard_count} shards of {self.num_examples} examples leave a host with nothing. "
                "Use fewer hosts, or batch_drop_remainder='pad'."
            )
        if self.remainder == "keep" and self.shard_count > 1:
            raise ConfigError(
                f"batch_drop_remainder=False would give {self.shard_count} hosts last batches of different sizes. "
                "Use 'pad', which keeps every example, or True."
            )
        total = self.total_examples
        if self.remainder == "drop" and total is not None and total < self.batch_size:
            raise ConfigError(
                f"{total} examples do not fill one batch of {self.batch_size}, and batch_drop_remainder=True drops "
                "what does not fill a batch. Use a smaller batch_size, more epochs, or 'pad'."
            )

    @property
    def total_examples(self) -> int | None:
        """Examples over all epochs and hosts, None if endless."""
        return None if self.num_epochs is None else self.num_examples * self.num_epochs

    @property
    def host_batch_size(self) -> int:
        return self.batch_size // self.shard_count

    @property
    def num_batches(self) -> int | None:
        """Batches, the same number on every host; None if endless."""
        total = self.total_examples
        if total is None:
            return self.max_batches
        full, rest = divmod(total, self.batch_size)
        batches = full if self.remainder == "drop" or not rest else full + 1
        return batches if self.max_batches is None else min(batches, self.max_batches)

    @property
    def last_batch_size(self) -> int:
        """Examples in the last batch over all hosts, padding included; that of all where there is no end."""
        total, count = self.total_examples, self.num_batches
        if self.remainder != "keep" or total is None or count is None:
            return self.batch_size
        return min(total - (count - 1) * self.batch_size, self.batch_size)

    def num_full_batches_from(self, batch: int) -> int:
        """Returns how many batches of the full size there are from `batch` on; more than anyone takes if endless."""
        return sys.maxsize if self.total_examples is None else max(self.total_examples // self.batch_size - batch, 0)

    def positions(self, batch: int, count: int = 1) -> np.ndarray:
        """Returns the stream positions of this host's real examples in `count` batches, hence fewer in a last one."""
        start = batch * self.batch_size
        stop = start + count * self.batch_size
        if self.total_examples is not None:
            stop = min(stop, self.total_examples)
        return np.arange(start + self.shard_index, stop, self.shard_count)


def split_epochs(positions: np.ndarray, num_examples: int) -> list[tuple[int, np.ndarray]]:
    """Returns rising `positions` cut at the epoch ends, as pairs of epoch and positions within that epoch."""
    first, last = int(positions[0]) // num_examples, int(positions[-1]) // num_examples
    if first == last:
        return [(first, positions - first * num_examples)]
    epochs = positions // num_examples
    parts = np.split(positions, np.flatnonzero(np.diff(epochs)) + 1)
    return [(int(part[0]) // num_examples, part % num_examples) for part in parts]


@functools.cache  # A pipeline makes its schedule more than once.
def _warn_of_doubles(batch_size: int, num_examples: int) -> None:
    _logger.warning(
        "batch_size=%d is more than the %d examples: a batch holds some of them twice.", batch_size, num_examples
    )
