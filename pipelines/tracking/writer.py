"""Writes any number of points, parameters and tags into one MLflow run, and loses only what MLflow refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelines.tracking.curves import Point
from pipelines.tracking.names import MAX_PARAM, MAX_TAG, clean_text, fitting_name

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

# Source: mlflow.utils.validation, MAX_METRICS_PER_BATCH and MAX_PARAMS_TAGS_PER_BATCH.
_METRICS_A_BATCH = 1000
_TEXTS_A_BATCH = 100


class RunDeleted(RuntimeError):
    """The run was deleted in MLflow; nothing can be written to it."""


class RunWriter:
    """Writes into one run.

    Args:
      client: A client of the store.
      run_id: The run.
      warn: Gets one line for each entry that MLflow refuses.
    """

    def __init__(self, client: MlflowClient, run_id: str, *, warn: Callable[[str], None]) -> None:
        self.run_id = run_id
        self._client = client
        self._warn = warn

    def metrics(self, points: Sequence[Point]) -> None:
        """Writes points; those of a metric must come in the order of their steps."""
        from mlflow.entities import Metric  # loaded with the client already

        for chunk in _chunks(points, _METRICS_A_BATCH):
            self._send("metrics", [Metric(point.key, point.value, point.time_ms, point.step) for point in chunk])

    def params(self, params: Mapping[str, str]) -> None:
        """Writes parameters whose names are clean; MLflow refuses one that has another value already."""
        from mlflow.entities import Param

        entries = [Param(key, clean_text(value, MAX_PARAM)) for key, value in params.items()]
        for chunk in _chunks(entries, _TEXTS_A_BATCH):
            self._send("params", chunk)

    def tags(self, tags: Mapping[str, str]) -> None:
        """Writes tags, whose names are clean, over those that stand."""
        from mlflow.entities import RunTag

        entries = [RunTag(fitting_name(key), clean_text(value, MAX_TAG)) for key, value in tags.items()]
        for chunk in _chunks(entries, _TEXTS_A_BATCH):
            self._send("tags", chunk)

    def _send(self, kind: str, entries: list[Any]) -> None:
        """Sends one batch; where MLflow refuses it, its halves, until the refused entry stands alone."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.log_batch(self.run_id, **{kind: entries}, synchronous=True)
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            if self._client.get_run(self.run_id).info.lifecycle_stage == "deleted":
                raise RunDeleted(self.run_id) from error
            if len(entries) == 1:
                self._warn(f"MLflow refuses {kind[:-1]} {entries[0].key!r}: {_first_line(error)}")
                return
            middle = len(entries) // 2
            self._send(kind, entries[:middle])
            self._send(kind, entries[middle:])


def _chunks(entries: Sequence[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(entries), size):
        yield list(entries[start : start + size])


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
