"""Evaluates a trial and kills itself around the record of step 20; run as `python killed_evaluator.py TRIAL MOMENT`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import evaluators
from kauldron_core.rundir import results

_link, _write = os.link, results.write_eval_result


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def write_eval_result(trial: Any, name: str, step: int, *args: Any, **kwargs: Any) -> bool:
    if step == 20 and sys.argv[2] == "before":
        kill()
    return _write(trial, name, step, *args, **kwargs)


def link(source: Any, target: Any, **kwargs: Any) -> None:
    is_record = os.fspath(target).endswith("/test/20.json")
    if is_record and sys.argv[2] == "between":
        kill()
    _link(source, target, **kwargs)
    if is_record and sys.argv[2] == "after":
        kill()


os.link = link
results.write_eval_result = write_eval_result
evaluators.evaluate_run(sys.argv[1], step="all", trust=["tests"])
print("not killed")
