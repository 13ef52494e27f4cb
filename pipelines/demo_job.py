"""A sweep as a Ray job, on a Ray head of our own: `make demo-job`, or `python -m pipelines.demo_job`.

    python -m pipelines.demo_job pipelines/configs/digits.py --sweep.model.hidden='[32, 128]' --run.root=/tmp/runs

A head is started as a child on free ports, with a token and this interpreter first in its PATH. A first job prints
which Python runs it and which files were shipped; the second is the sweep, that of `make demo` unless a config is
given, with its runs in `runs` of this folder unless `--run.root` says otherwise. Both go through `ray job submit`, as
on a cluster that is there already. The head is ended by its process number.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from kauldron_core.errors import RunFailed
from pipelines.cli.run import run

DEMO = (
    "pipelines/configs/digits.py",
    "--sweep.optimizer.learning_rate=[1e-3, 1e-2]",
    "--sweep.model.hidden=[32, 128]",
)

_START_S = 90.0
_STOP_S = 20.0
_OBJECT_STORE_BYTES = 256 * 1024**2
_PORTS = (
    "--port",
    "--dashboard-port",
    "--dashboard-agent-listen-port",
    "--dashboard-agent-grpc-port",
    "--runtime-env-agent-port",
    "--metrics-export-port",
    "--node-manager-port",
    "--object-manager-port",
    "--ray-client-server-port",
)


@dataclass(frozen=True)
class Head:
    """A running Ray head.

    Attributes:
      address: Where jobs are submitted: `http://127.0.0.1:PORT`.
      environment: Variables of the processes that talk to it; the token is among them.
      pid: Its process number, which is that of its process group, too.
      folder: Its temporary files; all its processes have this in their command lines.
    """

    address: str
    environment: Mapping[str, str]
    pid: int
    folder: Path

    def submit(self, words: Sequence[str], *, working_dir: str | Path = ".") -> subprocess.CompletedProcess[str]:
        """Runs `python WORDS` as a job, passes its output on, and returns what came of it."""
        command = [_beside("ray"), "job", "submit", "--address", self.address, "--working-dir", str(working_dir)]
        environment = {**os.environ, **self.environment}
        lines: list[str] = []
        with subprocess.Popen(
            [*command, "--", "python", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            for line in process.stdout or ():
                lines.append(line)
                sys.stdout.write(line)
                sys.stdout.flush()
        return subprocess.CompletedProcess(command, process.returncode, "".join(lines))


@contextlib.contextmanager
def ray_head(*, num_cpus: int = 2) -> Iterator[Head]:
    """Starts a Ray head for the length of the block.

    Raises:
      RunFailed: If it does not answer in time.
    """
    # Ray's sockets lie below, and their paths are short. Ray opens the folder that it is given to everybody.
    folder = Path(tempfile.mkdtemp(prefix="kdr-", dir="/tmp"))
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
    }
    ports: dict[str, int] = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    with (folder / "head.log").open("w") as log:
        process = subprocess.Popen(
            [_beside("ray"), "start", "--head", "--block", *_options(folder / "ray", ports, num_cpus)],
            env={**{name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_for(process, ports["--dashboard-port"], folder / "head.log")
        yield Head(f"http://127.0.0.1:{ports['--dashboard-port']}", environment, process.pid, folder)
    finally:
        _end(process)
        shutil.rmtree(folder, ignore_errors=True)


def _options(folder: Path, ports: Mapping[str, int], num_cpus: int) -> list[str]:
    return [
        f"--num-cpus={num_cpus}",
        f"--temp-dir={folder}",
        f"--object-store-memory={_OBJECT_STORE_BYTES}",
        "--node-ip-address=127.0.0.1",
        "--dashboard-host=127.0.0.1",
        "--disable-usage-stats",
        *(f"{name}={port}" for name, port in ports.items()),
    ]


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Returns when the head's dashboard answers."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(0.5)
    raise RunFailed(f"the Ray head did not start: {log.read_text(errors='replace').strip()[-500:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the head and whatever of its own process group is left."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _beside(program: str) -> str:
    """Returns the program of this interpreter's own environment."""
    return str(Path(sys.executable).with_name(program))


def show() -> None:
    """Prints which Python runs this, and what lies in the working directory; the first job does."""
    print(f"interpreter: {sys.executable}")
    print(f"shipped: {' '.join(sorted(os.listdir()))}", flush=True)


@click.command(
    "demo-job",
    help=(__doc__ or "").replace("\n\n    ", "\n\n\b\n    "),
    context_settings={"ignore_unknown_options": True, "max_content_width": 120},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(words: Sequence[str]) -> int:
    """Starts a head, runs both jobs, and returns 1 if any failed."""
    if words == ("show",):
        show()
        return 0
    has_config = any(not word.startswith("--") for word in words)
    has_root = any(word.startswith("--run.root=") for word in words)
    root = [] if has_root else [f"--run.root={Path('runs').absolute()}"]
    sweep = [*(() if has_config else DEMO), *words, *root]
    with ray_head() as head:
        print(f"Ray head: {head.address}, process {head.pid}", flush=True)
        shown = head.submit(["-m", "pipelines.demo_job", "show"])
        done = head.submit(["-m", "pipelines.sweep", *sweep])
    return int(bool(shown.returncode or done.returncode))


if __name__ == "__main__":
    sys.exit(run(command, program="python -m pipelines.demo_job"))
