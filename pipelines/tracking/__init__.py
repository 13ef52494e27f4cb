"""Records runs in MLflow: one experiment a sweep, one run a trial, fed from the run directory's files."""

from pipelines.tracking.process import RecorderProcess
from pipelines.tracking.recorder import Recorder
from pipelines.tracking.store import Store

__all__ = ["Recorder", "RecorderProcess", "Store"]
