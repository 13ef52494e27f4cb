"""Where MLflow keeps its records: the address, the client, and making a new SQLite store safely."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kauldron_core import masking
from kauldron_core.errors import ConfigError

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

URI_VARIABLE = "MLFLOW_TRACKING_URI"

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}

_DEFAULT_ARTIFACTS = "_MLFLOW_SERVER_ARTIFACT_ROOT"

# Without its job queues and with one worker the server takes a third of the time to start and of the memory.
_VIEW_VARIABLES = ("MLFLOW_DISABLE_TELEMETRY=true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false")

# A server that is down must be noticed in seconds; we retry ourselves. A user's own settings win.
_IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


@dataclass(frozen=True, kw_only=True)
class Store:
    """The address of one MLflow store.

    Attributes:
      uri: The tracking URI: `sqlite:////abs/runs/mlflow.db`, `http://...`.
      root: The folder of all runs; holds the artifacts of a SQLite store.
    """

    uri: str
    root: str

    @classmethod
    def at(cls, root: str | Path, *, environ: Mapping[str, str] | None = None) -> Store:
        """Returns the store that `MLFLOW_TRACKING_URI` names, else `ROOT/mlflow.db`."""
        variables = os.environ if environ is None else environ
        folder = Path(root).absolute()
        uri = variables.get(URI_VARIABLE, "").strip() or f"sqlite:///{folder}/mlflow.db"
        masking.keep_secret(urlsplit(uri).password or "")
        return cls(uri=_absolute_sqlite(uri), root=str(folder))

    @property
    def is_sqlite(self) -> bool:
        """Whether the store is a SQLite file."""
        return self.uri.startswith("sqlite:")

    @property
    def artifact_folder(self) -> Path | None:
        """Where artifacts of new experiments go; None leaves it to the server."""
        return Path(self.root) / "mlartifacts" if self.is_sqlite else None

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which a process sees this store, too."""
        return {URI_VARIABLE: self.uri, **QUIET}

    @property
    def view_command(self) -> str:
        """The command that shows the records in a browser of this machine; for a server its address."""
        if self.uri.startswith(("http:", "https:")):
            return self.uri
        words = [_mlflow_program(), "ui", "--backend-store-uri", self.uri, "--host", "127.0.0.1", "--workers", "1"]
        return f"{' '.join(_VIEW_VARIABLES)} {shlex.join(words)}"

    def open(self) -> MlflowClient:
        """Returns a client of the store, which is made first if it does not exist."""
        for name, value in {**QUIET, **_IMPATIENT}.items():
            os.environ.setdefault(name, value)
        if self.artifact_folder is not None:
            # MLflow makes an experiment "Default" of its own; without this its artifacts go to the working directory.
            os.environ[_DEFAULT_ARTIFACTS] = str(self.artifact_folder)
        from mlflow.tracking import MlflowClient  # takes seconds: only where something is recorded

        with self._made_once():
            client = MlflowClient(self.uri)
            client.search_experiments(max_results=1)  # makes the tables
        return client

    @contextmanager
    def _made_once(self) -> Iterator[None]:
        """Keeps two processes from making the tables of one SQLite file at once; all but one would fail."""
        if not self.is_sqlite:
            yield
            return
        file = _sqlite_file(self.uri)
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{file}.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _absolute_sqlite(uri: str) -> str:
    prefix = "sqlite:///"
    if not uri.startswith(prefix):
        return uri
    if not uri.removeprefix(prefix):
        raise ConfigError(f"{URI_VARIABLE}: {uri!r} names no file; write sqlite:////absolute/path/mlflow.db.")
    return f"{prefix}{_sqlite_file(uri)}"


def _sqlite_file(uri: str) -> Path:
    return Path(uri.removeprefix("sqlite:///")).absolute()


def _mlflow_program() -> str:
    """Returns how to call MLflow's own command from the current folder."""
    beside = Path(sys.executable).with_name("mlflow")
    found = shutil.which("mlflow")
    if not beside.exists() or (found and Path(found).samefile(beside)):
        return "mlflow"
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)
