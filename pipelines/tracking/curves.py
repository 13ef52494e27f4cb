"""From events to points: which values of a trial are new, and how the odd ones are written.

The rules:

* A training value is a point once: a step that is not above the last one of its key is the replay after a rewind. It is
  left out, and the tag `kdr.rewound` says so.
* NaN is recorded as NaN. MLflow stores infinity as an ordinary number (1.8e308), so an infinity is recorded as NaN too
  and counted in the tag `kdr.infinite.<metric>`.
* A metric whose name MLflow does not take stands under another one, and the tag `kdr.names` has the original.
* What is not a number is left out, with one warning a metric.
* What a trial took over from another one in population based training stands in the tag `kdr.inherited`.
* A stand-alone evaluation is a point as often as it was finished: `kdr eval --again` adds a second one at the same
  step, which MLflow shows as the latest, and the tag `kdr.evaluated_again` says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kauldron_core import rundir
from pipelines.tracking.names import changed_names, clean_name


class Point(NamedTuple):
    """One value of one metric, as MLflow gets it."""

    key: str
    value: float
    time_ms: int
    step: int


class Curves:
    """All metrics of one trial.

    Args:
      recorded: The last step of each metric that MLflow holds already. Points up to there are not given again.
    """

    def __init__(self, recorded: Mapping[str, int] | None = None) -> None:
        self._names: dict[str, str] = {}  # clean names by those of the files
        self._recorded = dict(recorded or {})
        self._last_step: dict[str, int] = {}
        self._infinite: dict[str, tuple[int, int, float]] = {}  # count, first step, first value
        self._rewinds: dict[int, None] = {}
        self._inherited: list[str] = []
        self._evaluated: dict[tuple[str, int], Any] = {}
        self._again: dict[str, None] = {}
        self._not_numbers: set[str] = set()

    def add_event(self, event: Mapping[str, Any]) -> list[Point]:
        """Returns the new points of one line of `events/`."""
        if event["kind"] == "resumed_from":
            self._rewinds[event["step"]] = None
        if event["kind"] == "inherited":
            changes = ", ".join(f"{path} {old} -> {new}" for path, (old, new) in event.get("changes", {}).items())
            self._inherited.append(f"at step {event['step']} from {event.get('donor')}: {changes}")
        if not isinstance(event.get("values"), Mapping):
            return []
        prefix = event.get("split") or event.get("name") or event["kind"]
        points = self._points(prefix, event["values"], event["step"], event["time_ms"])
        first_time = [self._finite(point) for point in points if self._is_first(point)]
        return [point for point in first_time if point.step > self._recorded.get(point.key, -1)]

    def add_evaluation(self, name: str, step: int, record: Mapping[str, Any]) -> list[Point]:
        """Returns the points of one finished evaluation; none if it was given before."""
        finished_ms = record.get("finished_ms") or 0
        if record.get("status") != "done" or self._evaluated.get((name, step)) == finished_ms:
            return []
        if (name, step) in self._evaluated:
            self._again[f"{name} at step {step}"] = None
        self._evaluated[name, step] = finished_ms
        points = self._points(name, record.get("values") or {}, step, finished_ms)
        return [self._finite(point) for point in points]

    @property
    def tags(self) -> dict[str, str]:
        """Marks of what is not plain in the curves."""
        tags = {
            f"kdr.infinite.{key}": f"{count} points, the first {value} at step {step}"
            for key, (count, step, value) in self._infinite.items()
        }
        if self._rewinds:
            tags["kdr.rewound"] = ", ".join(f"to step {step}" for step in self._rewinds)
        if self._inherited:
            tags["kdr.inherited"] = "; ".join(self._inherited)
        if changed := changed_names(self._names):
            tags["kdr.names"] = json.dumps(changed, ensure_ascii=False)
        if self._again:
            tags["kdr.evaluated_again"] = ", ".join(self._again)
        return tags

    @property
    def not_numbers(self) -> frozenset[str]:
        """Metrics that had values which are no numbers."""
        return frozenset(self._not_numbers)

    def _points(self, prefix: str, values: Mapping[str, Any], step: int, time_ms: int) -> Iterator[Point]:
        for name, value in values.items():
            full = name if name.startswith(f"{prefix}/") else f"{prefix}/{name}"
            if rundir.formats.is_number(value):
                yield Point(self._name(full), float(value), time_ms, step)
            else:
                self._not_numbers.add(full)

    def _name(self, name: str) -> str:
        if name not in self._names:
            self._names[name] = clean_name(name)
        return self._names[name]

    def _is_first(self, point: Point) -> bool:
        """Says whether this step of a training metric was not seen before."""
        if point.step <= self._last_step.get(point.key, -1):
            return False
        self._last_step[point.key] = point.step
        return True

    def _finite(self, point: Point) -> Point:
        """Counts an infinity and makes it NaN."""
        if not math.isinf(point.value):
            return point
        count, step, value = self._infinite.get(point.key, (0, point.step, point.value))
        self._infinite[point.key] = (count + 1, step, value)
        return point._replace(value=math.nan)
