"""What every pipeline is: settings, and a checkpointable iterator over batches."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import jax

from kauldron_core.data.iterator import DataIterator
from kauldron_core.data.schedule import BatchSchedule, Remainder, remainder_mode
from kauldron_core.data.shared import Shared
from kauldron_core.data.transforms.apply import check_transforms
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.resolving.uncalled import refuse_uncalled

PADDING_MASK = "padding_mask"
"""Key of the `bool[batch]` mask in a padded batch: True for real examples."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pipeline(abc.ABC):
    """Batches of arrays, in an order that follows from the seed and the epoch alone.

    Making a pipeline opens no data: what is wrong with the data shows when it is first iterated over, or asked for its
    length or `element_spec`. Pipelines are values; a variant is made with `dataclasses.replace`, which is also how a
    trainer hands down its seed (`replace(ds, seed=...)` where `ds.seed` is None). Variants share the opened data.

    Attributes:
      batch_size: Examples in a batch, over all hosts.
      seed: Seed of the order and of random transforms; None inherits the trainer's.
      shuffle: Whether each epoch has an order of its own.
      num_epochs: Times every example comes by; None for ever.
      batch_drop_remainder: What becomes of the examples that do not fill the last batch. True or 'drop' leaves them
        out, False or 'keep' makes a smaller batch (on one host), 'pad' fills it up with copies of the first example
        and puts a mask under `PADDING_MASK` into every batch.
      transforms: Steps applied to each example, in order: those of `kd.data` and Grain, or any function of an example.
      batch_transforms: Functions (or transforms without randomness) of a whole batch, applied last.
      max_batches: Stop after so many batches.
      sharding: If set, batches are global `jax.Array`s laid out so: one sharding, or a tree of them.
      shard_index: This host; None for this JAX process, looked up when iterating.
      shard_count: Hosts that share the data; None for the JAX processes.
    """

    batch_size: int | None = None
    seed: int | None = None
    shuffle: bool = False
    num_epochs: int | None = None
    batch_drop_remainder: bool | Remainder = True
    transforms: Sequence[Any] | Mapping[str, Any] = ()
    batch_transforms: Sequence[Any] | Mapping[str, Any] = ()
    max_batches: int | None = None
    sharding: Any = None
    shard_index: int | None = None
    shard_count: int | None = None

    def __post_init__(self):
        remainder_mode(self.batch_drop_remainder)
        for name in ("batch_size", "num_epochs", "max_batches", "shard_count"):
            _check_positive(self, name)
        if self.seed is not None and (not isinstance(self.seed, int) or self.seed < 0):
            raise ConfigError(f"{self}: seed is {self.seed!r}, not an integer of 0 or more.")
        if (self.shard_index is None) != (self.shard_count is None):
            raise ConfigError(f"{self}: set both shard_index and shard_count, or neither.")
        for name in ("transforms", "batch_transforms"):
            object.__setattr__(self, name, as_tuple(getattr(self, name)))
            for index, transform in enumerate(getattr(self, name)):
                if isinstance(transform, type):  # Functions are transforms.
                    refuse_uncalled(transform, at=f"{self}.{name}[{index}]")
        check_transforms(self.record_transforms)
        check_transforms(self.whole_batch_transforms, of_batches=True)
        self._share_data()

    def __str__(self) -> str:
        return type(self).__name__

    def __bool__(self) -> bool:
        # Otherwise `if trainer.eval_ds` would ask for the length, which opens the data.
        return True

    # Reading.

    @abc.abstractmethod
    def __iter__(self) -> DataIterator:
        """Returns a new iterator, at the first batch of epoch 0."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Returns the number of batches. Raises TypeError if there is no end to them."""

    @property
    @abc.abstractmethod
    def element_spec(self) -> Any:
        """Shapes and dtypes of a batch (all hosts' part together), as a tree of `jax.ShapeDtypeStruct`."""

    @property
    def last_batch_size(self) -> int | None:
        """Examples in the last batch, over all hosts; None where it may be short and that shows only at its end."""
        is_full = remainder_mode(self.batch_drop_remainder) != "keep" or self.num_epochs is None
        return self.batch_size if is_full else None

    def describe_share(self) -> dict[str, Any]:
        """Settings that must be equal on all hosts, and this host's share of the data, as data for JSON."""
        is_own = self.shard_index is None
        return {
            "batch_size": self.batch_size,
            "num_epochs": self.num_epochs,
            "batch_drop_remainder": remainder_mode(self.batch_drop_remainder),
            "max_batches": self.max_batches,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "shard_index": jax.process_index() if is_own else self.shard_index,
            "shard_count": jax.process_count() if is_own else self.shard_count,
        }

    # Variants.

    def take(self, num_batches: int) -> Self:
        """Returns the same data, ending after `num_batches` batches at the latest."""
        if self.max_batches is not None:
            num_batches = min(num_batches, self.max_batches)
        return dataclasses.replace(self, max_batches=num_batches)

    def map(self, function: Any) -> Self:
        """Returns the same data with `function` applied to each batch; its iterators can be saved as before."""
        return dataclasses.replace(self, batch_transforms=(*self.whole_batch_transforms, function))

    def device_put(self, sharding: Any) -> Self:
        """Returns the same data as global `jax.Array`s with the given sharding (one, or a tree of them)."""
        return dataclasses.replace(self, sharding=sharding)

    def for_eval(self) -> Self:
        """Returns the same data for an exact evaluation: one epoch, as stored, every example once, padded."""
        return dataclasses.replace(self, num_epochs=1, shuffle=False, batch_drop_remainder="pad")

    def with_seed(self, seed: int) -> Self:
        """Returns the same data with `seed`, unless this one has a seed of its own."""
        return self if self.seed is not None else dataclasses.replace(self, seed=seed)

    # For subclasses.

    @property
    def record_transforms(self) -> tuple[Any, ...]:
        return as_tuple(self.transforms)

    @property
    def whole_batch_transforms(self) -> tuple[Any, ...]:
        return as_tuple(self.batch_transforms)

    def _data_key(self) -> Hashable | None:
        """Key of the opened data: pipelines with equal keys share it. None shares nothing."""
        return None

    def _schedule(self, num_examples: int) -> BatchSchedule:
        """Returns the batches of this host.

        Raises:
          ConfigError: If the settings and the number of examples do not go together.
        """
        if self.batch_size is None:
            raise ConfigError(f"{self} has no batch_size.")
        try:
            return BatchSchedule(
                num_examples=num_examples,
                num_epochs=self.num_epochs,
                batch_size=self.batch_size,
                remainder=remainder_mode(self.batch_drop_remainder),
                max_batches=self.max_batches,
                shard_index=jax.process_index() if self.shard_index is None else self.shard_index,
                shard_count=jax.process_count() if self.shard_count is None else self.shard_count,
            )
        except ConfigError as error:
            raise ConfigError(f"{self}: {error}") from None

    def _share_data(self) -> None:
        key = self._data_key()
        shared = Shared() if key is None else Shared.under((type(self), key))
        object.__setattr__(self, "_shared", shared)

    @property
    def _opened(self) -> Shared:
        return self.__dict__["_shared"]

    def __getstate__(self) -> dict[str, Any]:
        # Settings only: a worker process opens the data for itself.
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        self._share_data()


def as_tuple(transforms: Sequence[Any] | Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns transforms as a tuple; in a dictionary they may have names, which an override can address."""
    return tuple(transforms.values() if isinstance(transforms, Mapping) else transforms)


def _check_positive(pipeline: Pipeline, name: str) -> None:
    value = getattr(pipeline, name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ConfigError(f"{pipeline}: {name} is {value!r}, not an integer of 1 or more.")
