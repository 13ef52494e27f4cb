"""What every test shares: an environment in which JAX, Ray and MLflow stay small, local and quiet."""

import os
import pathlib
import tempfile
import time
import zlib

# Set before any of these libraries is imported; children of the tests inherit them.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("NPROC", "1")
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DEDUP_LOGS"] = "0"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
from ray_cluster.workers.program_cache import machine_kind, private_folder

# Small programs are compiled again and again: once on a machine is enough for all sessions, their workers and children.
# JAX keys a program by all that decides what it comes to. What a killed process wrote in part goes, and what is old.
PROGRAMS = private_folder("test-programs", machine_kind("cpu")) or pathlib.Path(
    tempfile.mkdtemp(prefix="kdr-test-cache-")
)
if "PYTEST_XDIST_WORKER" not in os.environ:
    for entry in PROGRAMS.iterdir():
        try:
            zlib.decompress(entry.read_bytes())
            is_whole = True
        except (zlib.error, FileNotFoundError):
            is_whole = False
        if not is_whole or time.time() - entry.stat().st_mtime > 14 * 24 * 3600:
            entry.unlink(missing_ok=True)
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(PROGRAMS)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
for stale in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"):
    os.environ.pop(stale, None)

import hypothesis  # noqa: E402

# `make test` tries the same examples everywhere, so that what passes here passes there; `make soak` draws new ones
# (HYPOTHESIS_PROFILE=soak). A loaded machine is no failure, so there is no deadline.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.register_profile("soak", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
