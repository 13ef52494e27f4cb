"""Shows sweeps: a live table or plain lines while they run, a ranked table at the end."""

from pipelines.report.final import print_results
from pipelines.report.live import LiveReport
from pipelines.report.ranking import directions_of_run, ranking_of, sources_of
from pipelines.report.tables import count, make_table, number, trial_columns, trial_row
from pipelines.terminal import make_console

__all__ = [
    "LiveReport",
    "count",
    "directions_of_run",
    "make_console",
    "make_table",
    "number",
    "print_results",
    "ranking_of",
    "sources_of",
    "trial_columns",
    "trial_row",
]
