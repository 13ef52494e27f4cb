"""`SeqIO`: tasks and mixtures of SeqIO. TensorFlow is loaded when the data is opened, and not before."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from kauldron_core.data import trees
from kauldron_core.data.order import mixed_seed, require_seed
from kauldron_core.data.sequential import SequentialPipeline
from kauldron_core.data.shared import SameObject
from kauldron_core.errors import ConfigError, unknown_name

# Under the names of SeqIO's classes without their common end.
_CONVERTERS = {
    "decoder": "DecoderFeatureConverter",
    "enc_dec": "EncDecFeatureConverter",
    "encoder": "EncoderFeatureConverter",
    "lm": "LMFeatureConverter",
    "prefix_lm": "PrefixLMFeatureConverter",
    "prefix_suffix_lm": "PrefixSuffixLMFeatureConverter",
}

_ROWS_AT_ONCE = 64

# SeqIO hands out the seeds of preprocessors from a global variable.
_building = threading.Lock()


class _Opened(NamedTuple):
    provider: Any
    converter: Any


@dataclasses.dataclass(frozen=True)
class SeqIO(SequentialPipeline):
    """Pipeline over a SeqIO task or mixture.

    Each epoch is a data set of its own, with a seed made of this pipeline's and the epoch, so that epochs don't mix in
    the shuffle buffer, nor in a packed row. A mixture without `num_epochs` is one endless epoch, sampled at its rates;
    with `num_epochs` every example of every task comes once an epoch, whatever the rates.

    Resuming builds the data set anew and reads up to the saved place of the epoch again. Every host reads all examples
    and keeps its share, so that a batch holds the same ones on any number of hosts. A `dataset_fn` needs the parameters
    `(split, shuffle_files, seed)`: without the seed its order could not be repeated.

    Attributes:
      task: A task or mixture, a function without arguments that returns one (best in a config: it is not called where
        the data is not used), or the name of a registered one. Called again in the same process, the function must not
        register its task twice.
      feature_lengths: Lengths of the task's features, for trimming and for the converter.
      split: Which split of the task.
      feature_converter: Makes model features: 'decoder', 'enc_dec', 'encoder', 'lm', 'prefix_lm', 'prefix_suffix_lm', a
        converter or a function that returns one. None leaves the task's features as they are, each with its own length
        (see `Pad`).
      pack: Whether a converter given by name packs several examples into one row.
      use_cached: Whether to read what SeqIO's offline caching has written.
    """

    task: Any
    feature_lengths: Mapping[str, int]
    split: str = "train"
    feature_converter: str | Callable[..., Any] | None = None
    pack: bool = False
    use_cached: bool = False

    def __post_init__(self):
        super().__post_init__()
        if isinstance(self.feature_converter, str) and self.feature_converter not in _CONVERTERS:
            raise ConfigError(unknown_name("feature converter", self.feature_converter, _CONVERTERS, at=str(self)))
        if self.pack and not isinstance(self.feature_converter, str):
            raise ConfigError(f"{self}: pack=True needs a feature_converter given by name. Others know it themselves.")
        if any(not isinstance(length, int) or length < 1 for length in self.feature_lengths.values()):
            raise ConfigError(f"{self}: feature_lengths is {dict(self.feature_lengths)}, not positive lengths by name.")

    @property
    def provider(self) -> Any:
        """The SeqIO task or mixture. Loads TensorFlow."""
        return self._opened.get(self._open).provider

    @property
    def converter(self) -> Any:
        """The SeqIO feature converter, None if there is none. Loads TensorFlow."""
        return self._opened.get(self._open).converter

    def __iter__(self):
        self._opened.get(self._open)  # What is wrong with the task shows here, as with all pipelines.
        return super().__iter__()

    def open_epoch(self, epoch: int) -> Iterator[Any]:
        return _as_numpy(self._dataset(epoch))

    def reopen_epoch(self, epoch: int, offset: int, state: Any) -> Iterator[Any]:
        del state
        return _as_numpy(self._dataset(epoch).skip(offset))

    def _dataset(self, epoch: int) -> Any:
        import tensorflow as tf

        opened = self._opened.get(self._open)
        settings = {
            "sequence_length": self.feature_lengths,
            "split": self.split,
            "use_cached": self.use_cached,
            "shuffle": self.shuffle,
            "seed": self._epoch_seed(epoch),
        }
        try:
            with _building:
                if not _is_mixture(opened.provider):
                    dataset = opened.provider.get_dataset(**settings, num_epochs=1)
                elif self.num_epochs is None:
                    dataset = opened.provider.get_dataset(**settings, num_epochs=None)
                else:
                    dataset = _whole_mixture(opened.provider, settings)
                if opened.converter is not None:
                    dataset = opened.converter(dataset, task_feature_lengths=self.feature_lengths)
        except ValueError as error:
            raise ConfigError(f"{self}: {error}") from error
        options = tf.data.Options()
        options.deterministic = True
        return dataset.with_options(options)

    def _epoch_seed(self, epoch: int) -> int:
        # Also without shuffling: preprocessors may draw random numbers.
        seed = require_seed(self.seed, str(self)) if self.shuffle else self.seed or 0
        return mixed_seed(seed, epoch) % 2**31

    def _data_key(self) -> Hashable:
        names = (self.task, self.feature_converter)
        return self.split, self.pack, *(name if isinstance(name, str) else SameObject(name) for name in names)

    def _open(self) -> _Opened:
        seqio = _import_seqio(str(self))
        task = self._found_task(seqio)
        if self.split not in task.splits:
            raise ConfigError(unknown_name("split", self.split, sorted(task.splits), at=f"{self} {task.name!r}"))
        return _Opened(task, self._made_converter(seqio))

    def _found_task(self, seqio: Any) -> Any:
        task = self.task
        if isinstance(task, str):
            names = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
            if task not in names:
                raise ConfigError(unknown_name("task", task, sorted(names), at=str(self)))
            return seqio.get_mixture_or_task(task)
        if callable(task):
            task = task()
        if not isinstance(task, (seqio.Task, seqio.Mixture)):
            raise ConfigError(f"{self}: task is {task!r}, neither a task nor a mixture of SeqIO.")
        return task

    def _made_converter(self, seqio: Any) -> Any:
        converter = self.feature_converter
        if isinstance(converter, str):
            return getattr(seqio, _CONVERTERS[converter])(pack=self.pack)
        # A converter can be called too, and means something else by it.
        if converter is not None and not isinstance(converter, seqio.FeatureConverter):
            converter = converter()
        return converter

    def _order_state(self) -> dict[str, Any]:
        opened = self._opened.get(self._open)
        return {
            "pipeline": str(self),
            "task": opened.provider.name,
            "split": self.split,
            "feature_lengths": dict(self.feature_lengths),
            "feature_converter": type(opened.converter).__name__,
            "pack": getattr(opened.converter, "pack", False),
            "is_endless": self.num_epochs is None and _is_mixture(opened.provider),
            "shuffle": self.shuffle,
            "seed": self.seed,
        }


def _import_seqio(owner: str) -> Any:
    """Returns the module `seqio`, with accelerators hidden from TensorFlow."""
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        raise ConfigError(f"{owner} needs TensorFlow and SeqIO: install kauldron-ray[seqio].") from error
    for kind in ("GPU", "TPU"):
        try:
            # Else TensorFlow would take most of the memory that JAX works with.
            tf.config.set_visible_devices([], kind)
        except RuntimeError:
            # It runs already: whoever used it first has decided.
            break
    import seqio

    return seqio


def _is_mixture(provider: Any) -> bool:
    import seqio

    return isinstance(provider, seqio.Mixture)


def _whole_mixture(mixture: Any, settings: dict[str, Any]) -> Any:
    """Returns every example of every task once. A mixture itself ends with the first task that has no more."""
    import tensorflow as tf

    tasks = [task for task in mixture.tasks if settings["split"] in task.splits]
    keys = set(mixture.output_features)
    parts = [mixture.get_task_dataset(task, keys, **settings, num_epochs=1) for task in tasks]
    if not settings["shuffle"]:
        return functools.reduce(lambda dataset, part: dataset.concatenate(part), parts)
    rates = [mixture.get_rate(task) for task in tasks]
    return tf.data.Dataset.sample_from_datasets(parts, rates, seed=settings["seed"], stop_on_empty_dataset=False)


def _as_numpy(dataset: Any) -> Iterator[Any]:
    """Yields the examples of `dataset`. A generator: closing it lets go of the iterator and of what is read ahead."""
    import tensorflow as tf

    shapes = [spec.shape for spec in tf.nest.flatten(dataset.element_spec)]
    if all(shape.is_fully_defined() for shape in shapes):
        # Leaving TensorFlow costs as much for many rows as for one.
        for rows in dataset.batch(_ROWS_AT_ONCE).prefetch(tf.data.AUTOTUNE).as_numpy_iterator():
            yield from trees.unstack(rows)
    else:
        yield from dataset.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
