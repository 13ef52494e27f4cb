"""Shows a sweep while it runs: a table that refreshes itself on a terminal, plain lines in a log."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from kauldron_core import rundir
from kauldron_core.rundir import TRAINING_LOSS, Ranking
from pipelines.follow import News
from pipelines.report.progress import duration, remaining_s
from pipelines.report.state import SweepState, TrialState
from pipelines.report.tables import count, make_table, number, trial_columns, trial_row

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

_SUMMARY_EVERY_S = 15.0


class LiveReport:
    """A sidecar that shows progress on a console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._ranking: Ranking | None = None
        self._resources = ""
        self._state: SweepState | None = None
        self._live: Live | None = None
        self._began = time.monotonic()
        self._began_ms = time.time_ns() // 1_000_000
        self._next_summary = 0.0

    def expect(self, *, ranking: Ranking | None = None, resources: str = "") -> None:
        """Says what to show; before `start`.

        Args:
          ranking: What ranks the trials; where unset what the run says.
          resources: What one trial owns, in words.
        """
        self._resources = f"; {resources} a trial" if resources else ""
        self._ranking = ranking

    def say(self, line: str) -> None:
        """Prints one line, above the live table if there is one; may be called from any thread."""
        self.console.print(line, markup=False, soft_wrap=True)

    def start(self, run_dir: rundir.RunDir) -> None:
        """Begins to show this run directory."""
        self._state = SweepState(run_dir)
        if self.console.is_terminal:
            from rich.live import Live  # only where there is a terminal

            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        self.poll()

    def poll(self) -> None:
        """Shows what is new."""
        if self._state is None:
            return
        before = {name: (trial.status, trial.last_error) for name, trial in self._state.trials.items()}
        changed = self._state.poll()
        for trial, news in changed:
            was, was_wrong = before.get(trial.name, ("queued", ""))
            if trial.last_error not in ("", was_wrong):
                self._say_of(trial, f"is tried again after: {trial.last_error}")
            self._tell(trial, news, was=was)
        if self._live is not None:
            self._live.update(self._table(self._state))
        elif changed and time.monotonic() >= self._next_summary:
            self.say(self._summary(self._state))
            self._next_summary = time.monotonic() + _SUMMARY_EVERY_S

    def close(self, results: object = None) -> None:
        """Takes the live table away; the final one is printed by who has the results."""
        self.poll()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _tell(self, trial: TrialState, news: News, *, was: str) -> None:
        """Prints what must not be missed: failures always, the beginnings and ends of trials in a log."""
        for event in news.events:
            if event["kind"] == rundir.RESUMED_FROM and event["time_ms"] >= self._began_ms:
                self._say_of(trial, going_on(event))
        if trial.status != was and (trial.error or trial.reason):
            self._say_of(trial, f"{trial.status}: {trial.error or trial.reason}")
        elif trial.status != was and self._live is None:
            self.say(f"{self._elapsed()}  {trial.name}  {trial.status}")
        for name, step, record in news.evaluations:
            if record.get("status") == "failed":
                self.say(f"{self._elapsed()}  {trial.name}  {name} failed at step {step}: {record.get('error')}")
            elif self._live is None:
                self.say(f"{self._elapsed()}  {trial.name}  {name} at step {step}: {_values(record)}")

    def _say_of(self, trial: TrialState, what: str) -> None:
        """Says what went wrong in a trial, with what tells it from the others."""
        overrides = self._state.overrides(trial.name) if self._state is not None else ""
        self.say(f"{self._elapsed()}  {trial.name}  {what}{f' ({overrides})' if overrides else ''}")

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._began:5.0f} s"

    def _summary(self, state: SweepState) -> str:
        counts = ", ".join(f"{number} {status}" for status, number in state.counts().items())
        ranking = self._ranking or state.ranking()
        left_s = remaining_s(state)
        left = f"; about {duration(left_s)} left" if left_s else ""
        trials = f"{count(len(state.trials), 'trial')}: {counts}"
        return f"{self._elapsed()}  {trials}{_best(state, ranking)}{left}{self._resources}"

    def _table(self, state: SweepState) -> RenderableType:
        ranking = self._ranking or state.ranking()
        shown = _worth_showing(state.ranked(ranking), self.console.height - 8)
        first = [ranking.metric] if ranking else []
        metrics = list(dict.fromkeys([*first, TRAINING_LOSS]))
        rows = [
            trial_row(row.name, row.status, row.values, metrics, step=row.step, num_evaluations=row.evaluations)
            for row in shown
        ]
        return make_table(trial_columns(metrics), rows, title=self._summary(state), width=self.console.width)


def _best(state: SweepState, ranking: Ranking | None) -> str:
    """Returns the best trial so far in words; empty while there is none."""
    best = next(iter(state.ranked(ranking)), None)
    value = best.values.get(ranking.metric) if best is not None and ranking is not None else None
    if best is None or ranking is None or value is None or not math.isfinite(value):
        return ""
    return f"; best so far {best.name}, {ranking.metric} {number(value)} ({ranking.direction})"


def going_on(event: dict[str, Any]) -> str:
    """Returns from where a trial goes on, and which of its checkpoints it left aside for that."""
    start = f"from step {event['step']}" if event["step"] > 0 else "from the beginning, there was no checkpoint"
    aside = "".join(f"; {text} and is set aside" for text in event.get("left_aside") or ())
    return f"goes on {start}{aside}"


def _worth_showing(ranked: list[TrialState], most: int) -> list[TrialState]:
    """Returns at most `most` trials: those that run first, then the best."""
    by_interest = sorted(ranked, key=lambda trial: trial.status != "running")
    kept = {trial.name for trial in by_interest[: max(most, 3)]}
    return [trial for trial in ranked if trial.name in kept]


def _values(record: dict[str, object]) -> str:
    values = record.get("values")
    if not isinstance(values, dict):
        return "no values"
    losses = [name for name in values if name.startswith("losses/")]
    # With one loss the total says it all.
    shown = [name for name in values if name not in losses or name == "losses/total" or len(losses) > 2]
    return ", ".join(f"{name} {number(values[name])}" for name in shown)
