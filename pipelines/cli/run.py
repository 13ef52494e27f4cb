"""Runs a Click command and turns whatever happens into one line and an exit status.

| status | meaning |
|---|---|
| 0 | everything that was asked for is done |
| 1 | something failed while it ran |
| 2 | the user's mistake: one line, no traceback |
| 130 | interrupted (Ctrl-C) |
| 143 | preempted (SIGTERM); the same command goes on from the last checkpoint |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from kauldron_core.errors import ConfigError, RunFailed

DONE, FAILED, MISTAKE, INTERRUPTED, PREEMPTED = 0, 1, 2, 130, 143


def run(command: click.Command, argv: Sequence[str] | None = None, *, program: str) -> int:
    """Returns the exit status of `command` with the words `argv` (those of this process)."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words and "--help" not in words:
            from kauldron_core.konfig.project_path import add_project  # `kdr --help` does without konfig

            add_project()
        status = command.main(words, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except ConfigError as error:
        return _refuse(str(error), MISTAKE)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return MISTAKE
    except click.ClickException as error:
        return _refuse(error.format_message(), MISTAKE)
    except RunFailed as error:
        return _refuse(str(error), FAILED)
    except (KeyboardInterrupt, click.Abort):
        return _refuse("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader (`| head`) has enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return status if isinstance(status, int) else DONE


def _refuse(message: str, status: int) -> int:
    click.echo(f"error: {' '.join(message.splitlines())}", err=True)
    return status
