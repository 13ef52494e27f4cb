"""What is printed when a sweep has ended: the table, where everything lies, how to look at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kauldron_core.rundir import TRAINING_LOSS
from pipelines.report.tables import make_table, number, repeat_lines, trial_columns, trial_row

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kauldron_core.rundir import Ranking
    from ray_cluster.results import Results, Statistics

_SHOWN_METRICS = 2
"""Of each evaluator, beside its loss."""


def print_results(
    console: Console,
    results: Results,
    *,
    view_command: str | None,
    evaluators: tuple[str, ...] = (),
    ranking: Ranking | None = None,
) -> None:
    """Prints trials, best first, what went wrong, the run directory and the command that shows the records.

    Args:
      console: Where to.
      results: What came out.
      view_command: How to look at the records; None if there are none.
      evaluators: Names of the evaluators in the order of the config.
      ranking: What ranks the trials; where unset what the run says.
    """
    chosen = ranking or results.ranking
    ranked = results.ranked(chosen) if chosen else results.rows
    first = [chosen.metric] if chosen else []
    metrics = list(dict.fromkeys([*first, *_evaluated(results, evaluators), TRAINING_LOSS]))
    rows = [
        trial_row(row.name, row.status, row.values, metrics, step=row.step, num_evaluations=row.num_evaluations)
        for row in ranked
    ]
    console.print(make_table(trial_columns(metrics), rows, width=console.width))
    if chosen and len(results.groups) < len(results.rows):
        console.print(_groups_table(results, metrics, chosen, width=console.width))
    ranked_by = [f"ranked by {chosen.explained}"] if chosen and len(rows) > 1 else []
    for line in [*_faults(results), *ranked_by, f"run       {results.run_dir}"]:
        console.print(line, markup=False, soft_wrap=True)
    if view_command:
        console.print(f"records   {view_command}", markup=False, soft_wrap=True)


def _groups_table(results: Results, metrics: Sequence[str], ranking: Ranking, *, width: int) -> Table:
    """Returns the table of points that ran with several seeds, the best mean first."""
    rows: list[list[str]] = []
    for group in results.ranked_groups(ranking):
        found = [group.statistics(metric) for metric in metrics]
        texts = [_with_deviation(one) for one in found]
        rows.append([group.name, str(found[0].n), *texts])
    columns = [("point", "left"), ("n", "right"), *((metric, "right") for metric in metrics)]
    return make_table(columns, rows, title="mean ± standard deviation over seeds", width=width)


def _with_deviation(one: Statistics) -> str:
    if one.n < 2:
        return number(one.mean) if one.n else "-"
    return f"{number(one.mean)} ± {number(one.std)}"


def _evaluated(results: Results, evaluators: tuple[str, ...]) -> list[str]:
    """Returns what is shown of each evaluator: its loss and its first metrics."""
    found: list[str] = []
    for evaluator in evaluators:
        found += [name for name in results.metric_names if name == f"{evaluator}/losses/total"]
        metrics = [name for name in results.metric_names if name.startswith(f"{evaluator}/metrics/")]
        found += metrics[:_SHOWN_METRICS]
    return found


def _faults(results: Results) -> list[str]:
    """Returns a line for everything that did not succeed."""
    # Of the trials that a scheduler ended there may be hundreds, and each is as it should be.
    told = [(row, row.error or row.reason) for row in results.rows if row.status != "pruned"]
    lines = [f"{row.name} {row.status}: {text}" for row, text in told if text]
    for row in results.rows:
        lines += [f"{row.name}: {name} failed at step {step}: {error}" for name, step, error in row.failed_evaluations]
    lines += repeat_lines(results.repeats)
    lines += [f"{trial}: {name} was not evaluated at step {step}" for trial, name, step in results.pending_evaluations]
    return [*lines, *(f"warning: {error}" for error in results.sidecar_errors)]
