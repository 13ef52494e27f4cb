"""What every test shares: an environment in which JAX, Ray and MLflow stay small, local and quiet."""

import os

# Set before any of these libraries is imported; children of the tests inherit them.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("NPROC", "1")
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DEDUP_LOGS"] = "0"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
for stale in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"):
    os.environ.pop(stale, None)
