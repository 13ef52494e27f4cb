"""Features of a frozen model over a data set."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from kauldron_core import kontext
from kauldron_core.errors import ConfigError
from kauldron_core.evals import EvaluationStopped
from kauldron_core.forward import Context, ForwardPass, RngStreams, TrainState, padding_mask_of
from kauldron_core.metrics.host import fetch


@dataclasses.dataclass(frozen=True)
class FeatureKeys:
    """Where features and labels are found.

    Attributes:
      features: Key of float[batch, ...].
      labels: Key of int[batch].
    """

    features: kontext.Key
    labels: kontext.Key


@dataclasses.dataclass(frozen=True)
class Features:
    """Features float64[n, d] and labels int[n] of the real examples of a data set."""

    features: np.ndarray
    labels: np.ndarray


def make_program(model: Any, rng_streams: RngStreams, keys: FeatureKeys) -> Callable[..., Any]:
    """Returns the compiled function from (params, collections, step, batch) to features and labels."""
    forward = ForwardPass(model, rng_streams, (keys,))

    def read(params: Any, collections: Any, step: Any, batch: Any) -> dict[str, jax.Array]:
        context = forward.evaluate(Context(step=step, batch=batch, params=params, collections=collections))
        paths = {"features": keys.features, "labels": keys.labels}
        return kontext.resolve_from_keypaths(context, paths, at="probe")

    return jax.jit(read)


def read_features(
    program: Callable[..., Any], state: TrainState, ds: Any, *, at: str, stop: threading.Event | None = None
) -> Features:
    """Returns features and labels of one epoch of `ds`, padding left out.

    Raises:
      EvaluationStopped: If `stop` was set.
      ConfigError: If there is no data, or the labels are no classes.
    """
    features: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    with contextlib.closing(iter(ds)) as batches:
        for batch in batches:
            if stop is not None and stop.is_set():
                raise EvaluationStopped(at)
            found = fetch(program(state.params, state.collections, state.step, batch))
            mask = fetch(padding_mask_of(batch))
            is_real = np.ones(len(found["labels"]), bool) if mask is None else np.asarray(mask)
            features.append(np.asarray(found["features"], np.float64).reshape(len(is_real), -1)[is_real])
            labels.append(np.asarray(found["labels"])[is_real])
    if not features:
        raise ConfigError(f"{at}: there is no data.")
    joined = np.concatenate(labels)
    if joined.ndim != 1 or not np.issubdtype(joined.dtype, np.integer):
        raise ConfigError(f"{at}: the labels are {joined.dtype}{list(joined.shape)}, and a probe needs one class each.")
    return Features(np.concatenate(features), joined)
