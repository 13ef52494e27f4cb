"""Jobs on a cluster that runs: submitted, followed, and ended with the exit status that the program had there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kauldron_core.errors import ConfigError
from ray_cluster.cluster.shipping import KEPT_AT_HOME

_LOST = "the job ended without an exit status"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to run on the cluster.

    Attributes:
      entrypoint: The shell command; `python` is the one of the head's PATH.
      working_dir: Folder that is sent along.
      env: Variables of the job.
      name: Shown in lists of jobs.
    """

    entrypoint: str
    working_dir: str
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a job ended.

    Attributes:
      status: Ray's word: `SUCCEEDED`, `FAILED`, `STOPPED`.
      exit_status: That of the program; 1 if there was none.
      message: What Ray says about it.
    """

    status: str
    exit_status: int
    message: str


class JobClient:
    """Talks to the job server of a cluster.

    Args:
      address: `http://HOST:PORT` of its dashboard.
    """

    def __init__(self, address: str):
        if not address.startswith(("http://", "https://")):
            raise ConfigError(f"--address: {address!r} is not that of a job server. Example: http://127.0.0.1:8265")
        # The same token as for the cluster itself, if there is one: Ray looks at these variables.
        if "RAY_AUTH_TOKEN" in os.environ:
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        from ray.job_submission import JobSubmissionClient  # two seconds, and only for jobs

        try:
            self._client: Any = JobSubmissionClient(address)
        except (ConnectionError, RuntimeError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"--address: no job server answers at {address}: {first}") from error

    def submit(self, job: Job, *, excludes: Sequence[str] = KEPT_AT_HOME) -> str:
        """Sends a job and returns its id."""
        runtime_env = {"working_dir": job.working_dir, "excludes": list(excludes), "env_vars": dict(job.env)}
        return self._client.submit_job(
            entrypoint=job.entrypoint, runtime_env=runtime_env, metadata={"name": job.name} if job.name else None
        )

    def follow(self, job_id: str, say: Callable[[str], None]) -> Ending:
        """Passes on what a job prints until it ends, and returns how."""

        async def read() -> None:
            async for text in self._client.tail_job_logs(job_id):
                say(text)

        asyncio.run(read())
        info = self._client.get_job_info(job_id)
        code = info.driver_exit_code
        status = str(getattr(info.status, "value", info.status))
        exit_status = code if isinstance(code, int) else 0 if status == "SUCCEEDED" else 1
        # A program that a signal ended has a negative one.
        exit_status = 128 - exit_status if exit_status < 0 else exit_status
        return Ending(status=status, exit_status=exit_status, message=str(info.message or _LOST))
