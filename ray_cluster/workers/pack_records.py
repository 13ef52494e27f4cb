"""What a pack says while it trains, as plain data: how each of its trials stands."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError
from ray_cluster.driver import control

Record = dict[str, Any]

KIND = "members"
"""Kind of the records; `members` holds, for each trial that something happened to, what is new about it."""

_LOOK_EVERY_S = 1.0


def records_of(folder: rundir.PackDir, stop: threading.Event) -> Iterator[Record]:
    """Trains the pack of a folder, or goes on with it; yields records, the last of kind `done`.

    Args:
      folder: Of the pack.
      stop: Set to let all of its trials save and end. One alone is ended by a request in the run's `control.json`.
    """
    from kauldron_core import packs, train  # JAX, which the worker has imported

    content = folder.read()
    names: list[str] = content["trials"]
    run = folder.run()
    configs = [train.load_config(run.trial(name)) for name in names]
    asked = _Requests(run, names)
    rule = konfig.resolve(content["rule"], trusted=False) if content.get("rule") else None
    if not content.get("is_tried", True) and not rundir.committed_steps(folder.checkpoints):
        _refuse_unfit(configs, is_timed=content["is_timed"])
    began_ms, last_step, statuses = _now_ms(), 0, set[str]()
    pack = packs.Pack.from_json(content["pack"])
    for told in packs.iter_train(configs, pack, folder=folder.path, stop=stop, stop_members=asked.members, rule=rule):
        name, event = names[told.member], told.event
        own: Record = {"step": int(event.step), "began_ms": began_ms}
        last_step = max(last_step, own["step"])
        if isinstance(event, train.Done):
            statuses.add(event.status)
            reason = asked.reason(name) if event.status == "stopped" else event.reason
            own.update(status=event.status, reason=reason, ended_ms=_now_ms())
        yield {"kind": KIND, "step": last_step, "members": {name: own}}
    yield {"kind": "done", "step": last_step, "status": "preempted" if "preempted" in statuses else "done"}


def _refuse_unfit(configs: Sequence[Any], *, is_timed: bool) -> None:
    """Looks whether trials come to the same in one program, and are faster, on the devices of this process.

    Raises:
      ConfigError: If not. The driver then lets them train alone.
    """
    from kauldron_core import packs

    plan = packs.refine(configs, packs.plan(configs, limit=len(configs)), time=is_timed)
    if len(plan.packs) > 1:
        reasons = [f"{leaf.path}: {leaf.reason}" for leaf in plan.leaves if not leaf.is_packed]
        raise ConfigError(f"they train alone: {'; '.join([*reasons, *plan.notes])}")


def merge(records: list[Record], new: Record) -> None:
    """Adds a record to those that wait to be read; what is said of trials is folded into one."""
    last = records[-1] if records else {}
    if new["kind"] != KIND or last.get("kind") != KIND:
        records.append(new)
        return
    last["step"] = new["step"]
    for name, own in new["members"].items():
        last["members"][name] = {**last["members"].get(name, {}), **own}


class _Requests:
    """Who of a pack was asked to stop, looked up now and then."""

    def __init__(self, run: rundir.RunDir, names: list[str]):
        self._run = run
        self._places = {name: place for place, name in enumerate(names)}
        self._reasons: dict[str, str] = {}
        self._look_at = 0.0

    def members(self) -> set[int]:
        """Returns the places of those that were asked."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_EVERY_S
            self._reasons = control.stopped_trials(self._run)
        return {self._places[name] for name in self._reasons if name in self._places}

    def reason(self, name: str) -> str | None:
        """Returns why a trial was."""
        return self._reasons.get(name)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
