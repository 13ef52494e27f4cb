"""`--debug`, which every command takes."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

FLAG = "--debug"
VARIABLE = "KDR_DEBUG"


def add_debug_option(command: click.Command) -> click.Command:
    """Lets a command take `--debug`, and returns it; what is said is read from the words, see `is_debugging`."""
    if not any(FLAG in parameter.opts for parameter in command.params):
        help_text = f"Show the traceback of an error. Also: {VARIABLE}=1."
        command.params.append(click.Option([FLAG], is_flag=True, expose_value=False, help=help_text))
    return command


def is_debugging(words: Sequence[str]) -> bool:
    """Returns whether the words, or the environment, ask for tracebacks."""
    return FLAG in words or os.environ.get(VARIABLE, "") not in ("", "0")
