"""What watches a run from the command line: the live report, and the recorder unless it is unwanted."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from pipelines import run_folder
from pipelines.cli.signals import ending_as_on_sigterm
from pipelines.report import LiveReport, make_console
from pipelines.tracking import RecorderProcess
from ray_cluster.spec import Sweep


@contextlib.contextmanager
def watchers(spec: Sweep, *, no_tracking: bool) -> Iterator[tuple[LiveReport, RecorderProcess | None]]:
    """Makes the root of `spec`, yields what watches the run, and ends the recorder afterwards.

    The recorder imports MLflow from here on, beside the building of configs.

    Raises:
      ConfigError: If the root or the store can't be.
    """
    run_folder.make_root(spec)
    report = LiveReport(make_console())
    with _without_logged_errors(), ending_as_on_sigterm():
        if no_tracking:
            yield report, None
            return
        recorder = RecorderProcess(run_folder.place_store(spec), warn=report.say)
        try:
            recorder.prepare()
            yield report, recorder
        finally:
            recorder.stop()


@contextlib.contextmanager
def _without_logged_errors() -> Iterator[None]:
    """Leaves a trial's errors to the report; the log has them for who runs a sweep from Python."""
    logger = logging.getLogger("ray_cluster.driver.board")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
