"""Runs a Click command and turns whatever happens into one line and an exit status.

| status | meaning |
|---|---|
| 0 | everything that was asked for is done |
| 1 | something failed while it ran |
| 2 | the user's mistake: one line, no traceback |
| 130 | interrupted (Ctrl-C) |
| 143 | preempted (SIGTERM); the same command goes on from the last checkpoint |

What a user or a machine does is told in one line; `--debug`, or `KDR_DEBUG=1`, shows the traceback before it. Only an
error that nobody foresaw shows it always.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from kauldron_core import masking
from kauldron_core.errors import ConfigError, RunFailed, first_line
from kauldron_core.machine import machine_fault
from pipelines.cli.debugging import add_debug_option, is_debugging
from pipelines.terminal import echo, escape_warnings, print_traceback

DONE, FAILED, MISTAKE, INTERRUPTED, PREEMPTED = 0, 1, 2, 130, 143


def run(command: click.Command, argv: Sequence[str] | None = None, *, program: str) -> int:
    """Returns the exit status of `command` with the words `argv` (those of this process)."""
    words = list(sys.argv[1:] if argv is None else argv)
    add_debug_option(command)
    masking.keep_words_secret(words)
    escape_warnings()
    try:
        if words and "--help" not in words:
            from kauldron_core.konfig.trusting.project_path import add_project  # `kdr --help` does without konfig

            add_project()
        status = command.main(words, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return MISTAKE
    except BrokenPipeError:
        # The reader (`| head`) has enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (Exception, KeyboardInterrupt) as error:
        return _tell(error, is_debugging=is_debugging(words))
    return status if isinstance(status, int) else DONE


def _tell(error: BaseException, *, is_debugging: bool) -> int:
    """Says what went wrong, and returns the exit status."""
    if is_debugging:
        print_traceback(error)
    match error:
        case ConfigError():
            return _refuse(str(error), MISTAKE)
        case click.Abort() | KeyboardInterrupt():
            return _refuse("interrupted", INTERRUPTED)
        case click.ClickException():
            return _refuse(error.format_message(), MISTAKE)
        case RunFailed():
            return _refuse(str(error), FAILED)
        case _:
            return _tell_other(error, is_debugging=is_debugging)


def _tell_other(error: BaseException, *, is_debugging: bool) -> int:
    """Says what no part of ours has put into words: what the machine did in one line, a fault with its traceback."""
    fault = machine_fault(error)
    if fault is not None:
        hint = "" if is_debugging else " (--debug shows where.)"
        return _refuse(f"{fault}{hint}", MISTAKE if fault.is_mistake else FAILED)
    if not is_debugging:
        print_traceback(error)
    return _refuse(f"{first_line(error)} (not foreseen; the lines above say where)", FAILED)


def _refuse(message: str, status: int) -> int:
    echo(f"error: {' '.join(message.splitlines())}", err=True)
    return status
