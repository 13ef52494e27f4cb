"""`kdr ls [ROOT]`: the runs in a folder, one a line."""

from __future__ import annotations

import datetime
import sys
from collections import Counter
from collections.abc import Sequence

import click

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from pipelines.cli.run import DONE, run
from pipelines.operations.finding import INTERRUPTED, ROOT, is_driven, list_runs, status_of
from pipelines.report import make_console, make_table
from pipelines.terminal import echo

EPILOG = """\b
Examples:
  kdr ls
  kdr ls /shared/runs
"""


@click.command("ls", epilog=EPILOG, context_settings={"max_content_width": 120})
@click.argument("root", metavar="[ROOT]", default=ROOT)
def command(root: str) -> int:
    """List the runs in a folder (runs/), the newest last, with how far they are."""
    folder = rundir.local_path(root, at="ROOT")
    if not folder.is_dir():
        raise ConfigError(f"{root}: there is no such folder. Example: kdr ls runs")
    runs = list_runs(folder)
    if not runs:
        echo(f"no runs in {root}")
        return DONE
    console = make_console()
    rows, damages = [], []
    for one in runs:
        found = one.damage()
        damages += [found] if found else []
        rows.append(_row(one))
    headings = ("run", "made", "driver", "trials", "statuses", "ranked by")
    columns = [(heading, "right" if heading == "trials" else "left") for heading in headings]
    console.print(make_table(columns, rows, width=console.width))
    for line in damages:
        console.print(f"damaged   {line}", markup=False, soft_wrap=True)
    return DONE


def _row(one: rundir.RunDir) -> list[str]:
    driven = is_driven(one)
    counts = Counter(status_of(trial.status(), is_driven=driven) for trial in one.trials())
    statuses = ", ".join(
        f"{counts[status]} {status}" for status in (*rundir.STATUSES, INTERRUPTED, rundir.DAMAGED) if status in counts
    )
    folder = one.trials_path if one.trials_path.is_dir() else one.path
    made = datetime.datetime.fromtimestamp(folder.stat().st_ctime).strftime("%Y-%m-%d %H:%M")
    ranking = rundir.Ranking.read(one.readable_sweep.get("ranking"))
    ranked_by = "-" if ranking is None else str(ranking)
    return [one.name, made, "at work" if driven else "-", str(counts.total()), statuses, ranked_by]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr ls` and returns its exit status."""
    return run(command, argv, program="kdr ls")


if __name__ == "__main__":
    sys.exit(main())
