"""The command that made a run, built anew from what its file says: it is shown to be pasted into a shell.

A run may come from elsewhere, so its text is taken apart, each word is looked at, and the rest is left out: what is not
a command of ours, what would trust its code or join its cluster, a Python file that lies in a run, a call in a value
that could be of anything.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from kauldron_core import rundir
from kauldron_core.konfig.trusting.project_trust import is_in_run

UNKNOWN = "unknown"

_PROGRAMS = (
    ("kdr", "sweep"),
    ("kdr", "train"),
    ("python", "-m", "pipelines.sweep"),
    ("python", "-m", "pipelines.train"),
)
_WORD = re.compile(
    r"--(cfg|sweep|run|args)[.\[].*|--(sweep|trials|seeds|pack|cfg)=.*|--(sweep|extend|strict|no-tracking)"
)
_CALL = re.compile(r"([\w.]*)\s*\(")
_HARMLESS = re.compile(
    r"|range|linspace|logspace|uniform|loguniform|quniform|randint|choice|normal"
    r"|optax\.[a-z]\w*|nn\.[A-Z]\w*|kd\.(ckpts|data|evals|losses|metrics|nn|optim|train)\.[A-Z]\w*"
)
"""Calls that may stand in a text that is read as if the user had typed it; a lone bracket is one of a tuple."""

_NOT_TYPED = re.compile(r"kdr pipeline run, stage [\w.\- ]+|\w+\(name=(None|'[\w.\- ]*')\)\.run\(\.\.\.\)")
"""What stands in the place of a command where nobody has typed one: a stage of a pipeline, a call from Python."""


def recorded_words(run: rundir.RunDir) -> tuple[tuple[str, ...], list[str]] | None:
    """Returns the program and the other words of the command that made a run; None where the file says none of ours."""
    try:
        words = shlex.split(_text(run))
    except ValueError:  # Quotes that are not closed.
        return None
    program = next((one for one in _PROGRAMS if tuple(words[: len(one)]) == one), None)
    if program is None:
        return None
    rest = words[len(program) :]
    files = [word for word in rest if not word.startswith("-") and _is_config(word)]
    kept = [word for word in rest if _WORD.fullmatch(word) or word in files]
    is_ours = len(files) == 1 and all(word.isprintable() and _is_harmless(word) for word in kept)
    return (program, kept) if is_ours else None


def recorded_command(run: rundir.RunDir) -> str:
    """Returns the command that made a run, quoted for the shell; `unknown` where its file says none of ours."""
    found = recorded_words(run)
    if found is not None:
        return shlex.join([*found[0], *found[1]])
    return _text(run) if _NOT_TYPED.fullmatch(_text(run)) else UNKNOWN


def _text(run: rundir.RunDir) -> str:
    found = run.readable_sweep.get("command")
    return found if isinstance(found, str) else ""


def _is_harmless(word: str) -> bool:
    return all(_HARMLESS.fullmatch(name) for name in _CALL.findall(word))


def _is_config(word: str) -> bool:
    file = Path(word.partition(".py:")[0] + ".py" if ".py:" in word else word).expanduser()
    return file.suffix == ".json" or (file.suffix == ".py" and not is_in_run(file.parent))
