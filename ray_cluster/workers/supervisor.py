"""The Tune trainable of a sweep: a supervisor without JAX that runs trials in a child process, or in a group of them.

The child owns the trial's resources and has its own environment from the start. It stays warm between trials, is
killed when it has raised or hangs, and is made anew when it dies; the trial then goes on from its last checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ray import tune
from ray.exceptions import RayActorError, RayTaskError

import evaluators
from kauldron_core import rundir
from kauldron_core.errors import RunFailed
from ray_cluster.driver import control
from ray_cluster.searches.spaces import Point, SearchSpace
from ray_cluster.spec import TpuSlice
from ray_cluster.workers import inheriting, pack_records
from ray_cluster.workers.decisions import Decisions
from ray_cluster.workers.host_worker import Record, describe
from ray_cluster.workers.jax_process import ProcessSettings
from ray_cluster.workers.retries import RetryPolicy
from ray_cluster.workers.worker_group import WorkerGroup

_POINTER = "pointer.json"
_REPORT_EVERY_S = 1.0
_SAVE_TIMEOUT_S = 300.0
_NOT_MADE = "error raised in its creation task"  # Ray's words
_ALMOST_NO_CPU = 0.01  # a placement group must ask for something


@dataclass(frozen=True, kw_only=True)
class SupervisorSettings:
    """What every supervisor of a sweep is told.

    Attributes:
      process: Settings of the child processes.
      variables: Their environment.
      resources: What a child owns.
      hosts: How many children train a trial together.
      tpu_slice: The TPU slice that they are on.
      max_failures: See `Sweep`.
      hang_timeout_s: See `Sweep`.
      report_on: When a running trial is reported: every second (`time`), or, for searches and schedulers, after each
        step at which `metric` was measured (`record`), or that has a checkpoint besides (`saved`). The trial then waits
        until it is decided about.
      metric: What is decided by; None: any.
      space: What values stand for, for schedulers that change them.
    """

    process: ProcessSettings
    variables: dict[str, str] = field(repr=False)
    resources: dict[str, float]
    hosts: int = 1
    tpu_slice: TpuSlice | None = None
    max_failures: int = 2
    hang_timeout_s: float | None = None
    report_on: Literal["time", "record", "saved"] = "time"
    metric: str | None = None
    space: SearchSpace | None = None


class Supervisor(tune.Trainable):
    """Runs the trials and packs that Tune hands it, one after another, each in `settings`'s kind of child.

    A report holds the last value of every metric (where others decide: as of the step that is decided at), `step`,
    `status`, `num_failures`, `last_error`, `setup_error` (what kept the process itself from starting), `worker` (what
    the process said of itself) and, at the end, `done`. A trial that fails for good is a report like any other: Tune's
    own retries are left for lost supervisors. That of a pack has `members` too: `step`, `status` and more of each of
    its trials.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """Returns what a trial needs: nothing worth reserving for the supervisor, and a bundle for each child."""
        bundles = [dict(bundle) for bundle in config["trial"]["bundles"]]
        return tune.PlacementGroupFactory([{}, *bundles] if bundles else [{"CPU": _ALMOST_NO_CPU}])

    def setup(  # pyright: ignore[reportIncompatibleMethodOverride]  (`tune.with_parameters` gives the settings)
        self, config: dict[str, Any], *, settings: Mapping[str, SupervisorSettings]
    ) -> None:
        """Makes the first child and begins the trial; does not wait for either.

        Args:
          config: `trial`, with its `name`, its `bundles` of resources, and its `kind`: the entry of `settings` that
            fits them.
          settings: By kind. Tune reuses a supervisor only for trials with equal resources, so its kind never changes.
        """
        self._settings = settings[config["trial"]["kind"]]
        self._child: Any = None
        self._worker: dict[str, Any] = {}
        self._begin(config["trial"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Takes over another trial with the same resources."""
        self._save_and_end()
        self._begin(new_config["trial"])
        return True

    def step(self) -> dict[str, Any]:
        """Returns a report when one is due, or when the trial has ended."""
        # The trial may have waited for this call.
        self._heard_at = time.monotonic()
        self._report_at = self._heard_at + _REPORT_EVERY_S
        while not self._ending and not self._is_report_due():
            self._watch()
        self._has_news = False
        return {
            **self._values,
            "step": self._step,
            "status": "running",
            "num_failures": self._policy.num_failures,
            "last_error": self._last_error,
            "setup_error": self._setup_error,
            "worker": self._worker,
            **(self._ending or self._decisions.take()),
            **self._told_of_members(),
        }

    def _told_of_members(self) -> dict[str, Any]:
        """Returns how each trial of a pack stands; those that have not ended share the ending of the pack."""
        if not self._members:
            return {}
        common = {key: value for key, value in self._ending.items() if key in ("status", "reason")}
        return {"members": {name: {"status": "running", **common, **own} for name, own in self._members.items()}}

    def _is_report_due(self) -> bool:
        if self._is_decided_about:
            return self._decisions.is_due
        return self._has_news and time.monotonic() >= self._report_at

    @property
    def _is_decided_about(self) -> bool:
        return self._settings.report_on != "time"

    def cleanup(self) -> None:
        """Lets a running trial save, then ends the child."""
        self._save_and_end()
        self._end_child()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Writes a pointer: which trial of the run, and its newest checkpoint. The state itself is in RUN."""
        step = max(evaluators.committed_steps(self._trial.checkpoints), default=None)
        rundir.write_json(f"{checkpoint_dir}/{_POINTER}", {"trial": self._trial.name, "step": step})

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Goes on from what the pointer names: the trial itself, or another one whose state it is to take."""
        pointer = rundir.read_json(f"{checkpoint}/{_POINTER}")
        if pointer["trial"] != self._trial.name and pointer["step"] is not None:
            donor = rundir.RunDir(self._settings.process.run_dir).trial(pointer["trial"])
            inheriting.pass_on(donor, self._trial, step=pointer["step"], point=self._point())

    def _point(self) -> Point:
        """Returns the point of the trial as it is now, after what a scheduler has changed."""
        space = self._settings.space
        return space.point(self._told["values"]) if space is not None else ()

    def _begin(self, told: dict[str, Any]) -> None:
        """Gets ready for a trial or a pack.

        Args:
          told: Its `name`; where a scheduler may change them, the `values` of its point; of a pack, the `members`.
        """
        self._told = told
        run = rundir.RunDir(self._settings.process.run_dir)
        self._members: dict[str, dict[str, Any]] = {
            name: {"step": 0, "pack": told["name"]} for name in told.get("members", ())
        }
        self._trial = run.trial(told["name"])
        self._folder = str(run.pack(told["name"]).path if self._members else self._trial.path)
        self._policy = RetryPolicy(self._settings.max_failures)
        self._values: dict[str, float] = {}
        self._step = 0
        self._decisions = Decisions(self._settings.metric, at_checkpoints=self._settings.report_on == "saved")
        self._ending: dict[str, Any] = {}
        self._has_news = False
        self._is_started = self._is_stopping = False
        self._last_error: str | None = None
        self._setup_error: str | None = None
        if self._child is None:
            self._make_child()

    def _make_child(self) -> None:
        settings = self._settings
        self._child = WorkerGroup(
            settings.process,
            resources=settings.resources,
            variables=settings.variables,
            num_hosts=settings.hosts,
            tpu_slice=settings.tpu_slice,
        )

    def _watch(self) -> None:
        """Waits a moment for the child and takes in what it says."""
        try:
            self._follow_child()
        except RayActorError as error:
            self._end_child()
            if _NOT_MADE in str(error):
                # The code can't be imported there, say; the next trial would meet the same.
                self._after_exception({"error": f"a worker can't be made: {_last_line(error)}", "is_setup": True})
            else:
                text = f"the worker process died: {_first_line(error)}"
                self._after_failure(text, again=self._policy.after_death())
        except RayTaskError as error:
            # The child's own set-up failed: it is on the wrong platform, or can't see the run directory.
            cause = error.cause if isinstance(error.cause, Exception) else error
            self._after_exception({"error": describe(cause), "is_setup": True})
        except RunFailed as error:
            # Last: what a child raises is of its own class and of Ray's.
            self._end_child()
            self._after_failure(str(error), again=self._policy.after_death())

    def _follow_child(self) -> None:
        run_dir = self._settings.process.run_dir
        if control.is_stop_requested(run_dir):
            self._ask_to_stop("untouched")
        elif control.stop_reason(run_dir, self._trial.name):
            self._ask_to_stop("stopped")
        elif not self._is_started:
            self._start_when_warm()
        if self._is_started and not self._ending:
            self._poll_child()

    def _poll_child(self) -> None:
        """Takes in what the child says, and ends one that says nothing any more."""
        for record in self._child.poll(at_once=self._is_decided_about):
            self._heard_at = time.monotonic()
            self._take_in(record)
        limit_s = self._settings.hang_timeout_s
        if limit_s is not None and not self._ending and time.monotonic() - self._heard_at > limit_s:
            self._end_child()
            text = f"hung: no sign of life for {limit_s:g} s, so its process was killed"
            self._after_failure(text, again=self._policy.after_death())

    def _start_when_warm(self) -> None:
        worker = self._child.warmed(wait_s=0.5)
        if worker is not None:
            self._worker = worker
            self._child.start(self._folder, in_lockstep=self._is_decided_about)
            self._heard_at = time.monotonic()
            self._is_started = self._has_news = True

    def _ask_to_stop(self, if_not_begun: str) -> None:
        """Lets the trial save and end.

        Args:
          if_not_begun: Its status if nothing of it has run here; `untouched` leaves what stands.
        """
        if not self._is_started:
            self._ending = {"done": True, "status": if_not_begun, "reason": self._reason()}
        elif not self._is_stopping:
            self._child.stop()
            self._is_stopping = True

    def _take_in(self, record: Record) -> None:
        self._has_news = True
        self._step = max(self._step, record.get("step", 0))
        match record["kind"]:
            case "logged" | "evaluated":
                self._values.update({f"{record['split']}/{name}": value for name, value in record["values"].items()})
            case "settled":
                self._values.update(record["values"])
                self._decisions.settled(record["step"], record["values"])
            case "saved":
                self._decisions.saved(record["step"])
            case "done":
                self._ending = {"done": True, **{key: value for key, value in record.items() if key != "kind"}}
                reason = self._reason()
                if reason and record["status"] == "preempted":
                    # Somebody wanted the end of this one trial: it is its result, and it is not gone on with.
                    self._ending.update(status="stopped", reason=reason)
            case pack_records.KIND:
                for name, own in record["members"].items():
                    self._members[name].update(own)
            case "raised":
                self._after_exception(record)

    def _reason(self) -> str | None:
        """Returns why somebody wanted the end of this one trial, None if nobody did."""
        return control.stop_reason(self._settings.process.run_dir, self._trial.name)

    def _after_exception(self, record: Record) -> None:
        text = record["error"]
        if record.get("is_setup"):
            # The same mistake in another trial has the same text.
            self._setup_error = text.replace(self._folder, "TRIAL")
        if record.get("is_mistake"):
            # A mistake in the config is there the next time too, and has done no harm to the process.
            self._after_failure(text, again=False)
        else:
            # The process may hold broken state or memory: neither this trial nor the next one runs in it again.
            self._end_child()
            self._after_failure(text, again=self._policy.after_exception(text))

    def _after_failure(self, text: str, *, again: bool) -> None:
        self._has_news = True
        self._is_started = False
        self._last_error = text
        if not again:
            self._ending = {"done": True, "status": "failed"}
        elif control.is_stop_requested(self._settings.process.run_dir):
            self._ending = {"done": True, "status": "preempted"}
        else:
            self._make_child()

    def _save_and_end(self) -> None:
        """Lets the trial that is running save itself; a scheduler takes it away without asking."""
        if not self._is_started or self._ending or self._child is None:
            return
        if not self._child.save_and_end(timeout_s=_SAVE_TIMEOUT_S):
            self._end_child()

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1]
