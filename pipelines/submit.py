"""`kdr submit COMMAND ...`: any of our commands as a job of a cluster. Also `python -m pipelines.submit`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from kauldron_core import masking, rundir
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.escaping import OutputFilter
from kauldron_core.konfig.trusting.project_path import refuse_hiding
from pipelines.cli.run import DONE, run
from pipelines.terminal import echo
from ray_cluster.cluster.jobs import Job, JobClient
from ray_cluster.cluster.shipping import KEPT_AT_HOME

EPILOG = """\b
Examples:
  kdr submit --address=http://head:8265 sweep CONFIG.py --sweep.seed='range(8)' --run.root=/shared/runs --run.name=demo
  kdr submit --address=http://head:8265 --detach sweep --resume=/shared/runs/demo
  RAY_AUTH_TOKEN=... kdr submit --address=http://head:8265 pipeline run PIPELINE.py --cfg.root=/shared/runs
"""

MODULES = {
    "sweep": "pipelines.sweep",
    "train": "pipelines.train",
    "eval": "pipelines.evaluate",
    "pipeline": "pipelines.pipeline",
}
"""Commands that can be jobs, and the modules that they are."""

_ROOTS = {"sweep": "--run.root", "train": "--run.root", "pipeline": "--cfg.root"}


@click.command(
    "submit",
    epilog=EPILOG,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "max_content_width": 120},
)
@click.option("--address", envvar="RAY_API_SERVER_ADDRESS", help="The cluster's job server: http://HOST:8265.")
@click.option("--working-dir", default=".", show_default=True, help="Folder that is sent along.")
@click.option("--detach", is_flag=True, help="Return when the job has been sent.")
@click.option("--no-preflight", is_flag=True, help="Do not look at the nodes first.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent, and send nothing.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(
    address: str | None, working_dir: str, detach: bool, no_preflight: bool, dry_run: bool, words: Sequence[str]
) -> int:
    """Run one of our commands as a job of a cluster, follow it, and exit with its own exit status.

    The options of submit come before COMMAND. The job goes on when this terminal is closed. Files named .env, run
    folders and environments stay at home, like everything in .gitignore and .rayignore.
    """
    folder = check(words, working_dir)
    job = Job(
        entrypoint=entrypoint(words, preflight=not no_preflight),
        working_dir=str(folder),
        name=shlex.join(masking.mask_words(words)),
    )
    if dry_run:
        echo(f"sends     {folder} without {', '.join(KEPT_AT_HOME)}")
        echo(f"runs      {job.entrypoint}")
        return DONE
    if address is None:
        raise ConfigError("--address: the cluster's job server is missing. Example: --address=http://127.0.0.1:8265")
    client = JobClient(address)
    job_id = client.submit(job)
    echo(f"job {job_id} at {address}; to stop it: ray job stop --address={address} {job_id}")
    if detach:
        return DONE
    try:
        passed = OutputFilter()
        ending = client.follow(job_id, lambda text: click.echo(passed.take(text), nl=False))
    except KeyboardInterrupt:
        echo(f"\nThe job goes on. To see it again: ray job logs --address={address} --follow {job_id}", err=True)
        raise
    if ending.exit_status:
        echo(f"job {job_id} {ending.status}, exit status {ending.exit_status}: {ending.message}", err=True)
    return ending.exit_status


def check(words: Sequence[str], working_dir: str) -> Path:
    """Refuses what could only fail on the cluster, and returns the folder to send.

    Raises:
      ConfigError: With the corrected form.
    """
    if not words:
        raise ConfigError("the command is missing. Example: kdr submit --address=http://head:8265 sweep CONFIG.py")
    if words[0] not in MODULES:
        raise ConfigError(unknown_name("command", words[0], MODULES, at="kdr submit"))
    folder = rundir.with_home(working_dir, at="--working-dir").absolute()
    if not folder.is_dir():
        raise ConfigError(f"--working-dir: {working_dir!r} is no folder.")
    refuse_hiding(folder, "--working-dir")  # The job starts in it, so it comes first on the path there.
    flag = _ROOTS.get(words[0])
    root = root_of(words)
    _refuse_addresses(words)
    is_resumed = any(word.startswith("--resume=") for word in words)
    if flag is not None and not is_resumed and not (root and Path(root).is_absolute()):
        name = Path(root or "runs").name
        raise ConfigError(
            f"{flag}: a job's working directory is lost with its node. Give an absolute folder that all nodes share:"
            f" {flag}=/shared/{name}"
        )
    config = next((word for word in words[1:] if word.partition(":")[0].endswith(".py")), None)
    path = config.partition(".py:")[0].removesuffix(".py") + ".py" if config else None
    if path and not (folder / path).is_file():
        raise ConfigError(f"{config}: there is no such file in {folder}, which is what the cluster will see.")
    return folder


def _refuse_addresses(words: Sequence[str]) -> None:
    """Refuses a run in a bucket: as the folder of runs, as a name, or as the run that a command is about."""
    for word in words[1:]:
        flag, _, value = word.partition("=")
        if flag in ("--resume", "--run.name", "--run.root", "--cfg.root", "--root"):
            rundir.refuse_address(value, at=flag)
        elif not word.startswith("-"):
            rundir.refuse_address(word)


def root_of(words: Sequence[str]) -> str | None:
    """Returns the folder of runs that a command names."""
    flag = f"{_ROOTS.get(words[0], '--run.root')}="
    return next((word.removeprefix(flag) for word in words if word.startswith(flag)), None)


def entrypoint(words: Sequence[str], *, preflight: bool) -> str:
    """Returns the shell command of the job."""
    own = ["python", "-m", MODULES[words[0]], *words[1:]]
    root = root_of(words)
    first = f"{shlex.join(['python', '-m', 'pipelines.preflight', f'--root={root}'])} && " if preflight and root else ""
    return f"{first}{shlex.join(own)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr submit` and returns its exit status."""
    return run(command, argv, program="kdr submit")


if __name__ == "__main__":
    sys.exit(main())
