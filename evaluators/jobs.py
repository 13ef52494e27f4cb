"""Evaluation of a whole run or of one trial, in this process: behind `kdr eval` and at the end of `kdr train`."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypedDict, Unpack, get_args

from evaluators import ledger
from evaluators import trial as trial_lib
from evaluators.sources import Task, evaluate_source
from evaluators.trial import Changes
from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError, DamagedFile, unknown_name
from kauldron_core.evaluator_nodes import evaluator_fingerprint, evaluator_nodes
from kauldron_core.rundir import Record, RunDir, TrialDir

StepWord = Literal["latest", "best", "all", "due"]
Step = int | StepWord
_STEP_WORDS: tuple[StepWord, ...] = get_args(StepWord)


@dataclasses.dataclass(frozen=True)
class _Request:
    """What was asked for, the same for every trial."""

    step: Step
    names: tuple[str, ...] | None
    again: bool
    as_name: str | None
    changes: Changes
    metric: str | None = None
    mode: str | None = None


class Selection(TypedDict, total=False):
    """Which evaluations: the arguments of `plan_run`."""

    step: Step | str
    names: Iterable[str] | None
    evals: str | os.PathLike[str] | None
    again: bool
    as_name: str | None
    overrides: Sequence[str]
    metric: str | None
    mode: Literal["max", "min"] | None


@dataclasses.dataclass(frozen=True)
class EvalPlan:
    """The evaluations of a run, checked, before the first one.

    Attributes:
      tasks: What to evaluate, trial by trial, oldest checkpoint first. What has a record is among them.
      missing: A record for each trial that has no such checkpoint; it is written nowhere.
      changes: How the evaluations differ from what the trials' configs say.
      again: Whether to evaluate though there are records.
      as_name: Name to record under.
      chosen_by: What the best checkpoints are the best by, in words; empty where others were asked for.
    """

    is_strict: ClassVar[bool] = True

    tasks: list[Task]
    missing: list[Record]
    changes: Changes
    again: bool = False
    as_name: str | None = None
    chosen_by: str = ""

    def options(self) -> dict[str, Any]:
        """Returns the arguments of `CheckpointEvaluator.evaluate` that all tasks share."""
        return {"again": self.again, "as_name": self.as_name, "changes": self.changes}

    def resources(self) -> dict[str, float]:
        """Returns what the evaluators say that a process of theirs must own."""
        trials, names = {task.trial for task in self.tasks}, {task.name for task in self.tasks}
        return trial_lib.needed_resources(trials, names, self.changes)

    def look(self) -> tuple[list[Task], bool]:
        """Returns the tasks, and that no other will follow."""
        return self.tasks, True

    def standing(self, task: Task) -> Record | None:
        """Returns the record that makes a task needless, if there is one."""
        return None if self.again else rundir.read_eval_result(task.trial, self.as_name or task.name, task.step)

    def arrange(self, records: Mapping[Task, Record]) -> list[Record]:
        """Returns all records in the order of the plan."""
        return [*self.missing, *(records[task] for task in self.tasks if task in records)]


def plan_run(
    run_or_trial: str | os.PathLike[str],
    *,
    step: Step | str = "latest",
    names: Iterable[str] | None = None,
    evals: str | os.PathLike[str] | None = None,
    again: bool = False,
    as_name: str | None = None,
    overrides: Sequence[str] = (),
    metric: str | None = None,
    mode: Literal["max", "min"] | None = None,
) -> EvalPlan:
    """Returns what `evaluate_run` with these arguments evaluates, for whoever hands it out to several processes.

    Args:
      run_or_trial: A run directory (all its trials) or a trial's folder.
      step: Which checkpoints of each trial: the `latest`, the `best` by a metric, `all`, those that the evaluators' run
        strategies make `due` once training has ended, or one step.
      names: Evaluators; by default the stand-alone ones, or all where there are none. `due` takes stand-alone ones.
      evals: A config file whose evaluators are used beside those of the experiment; `names` are by default all of it.
      again: Evaluate though there are records, and replace them; the old ones are kept.
      as_name: Record under this name; needs one evaluator.
      overrides: Changes of the config (`evals.test.num_batches=2`). A changed evaluator needs `as_name`.
      metric: What `best` goes by, `test/metrics/accuracy`; where unset what ranks the trials of the sweep.
      mode: Which end of it is best; where unset the metric says it.

    Raises:
      ConfigError: If there is no such run, checkpoint or evaluator, or a changed evaluator has no new name.
    """
    own = trial_lib.read_evaluators(evals) if evals is not None else {}
    request = _Request(
        step=_parse_step(step),
        names=tuple(names) if names is not None else tuple(own) or None,
        again=again,
        as_name=as_name,
        changes=Changes(tuple(overrides), own),
        metric=metric,
        mode=mode,
    )
    chosen_by = dict[str, None]()
    tasks, missing = _plan(find_trials(run_or_trial), request, chosen_by)
    return EvalPlan(tasks, missing, request.changes, again, as_name, chosen_by="; ".join(chosen_by))


def evaluate_run(
    run_or_trial: str | os.PathLike[str],
    *,
    shards: int = 1,
    trust: Sequence[str] = (),
    on_record: Callable[[Record], None] | None = None,
    **selection: Unpack[Selection],
) -> list[Record]:
    """Evaluates checkpoints of a run directory or a trial and returns the records, oldest checkpoint first.

    What has a record already is not evaluated again; its record is returned. Everything is checked before the first
    evaluation.

    Args:
      run_or_trial: A run directory (all its trials) or a trial's folder.
      shards: Evaluate so many disjoint shares of the data, one after the other, and merge their states.
      trust: Packages whose names configs may call.
      on_record: Called with each record as it is there.
      **selection: Which evaluations: the arguments of `plan_run`, such as `step` and `names`.

    Returns:
      The records, each with the key `trial`. A trial that lacks the checkpoint asked for has one of status `skipped`,
      which is not written anywhere.

    Raises:
      ConfigError: If there is no such run, checkpoint or evaluator, or a changed evaluator has no new name.
    """
    if trust:
        konfig.trust(*trust)  # A run strategy of one's own is built to make the plan.
    return evaluate_source(plan_run(run_or_trial, **selection), shards=shards, on_record=on_record)


def _parse_step(step: Step | str) -> Step:
    if isinstance(step, int):
        return step
    for word in _STEP_WORDS:
        if step == word:
            return word
    if step.isdecimal():
        return int(step)
    raise ConfigError(unknown_name("step", step, [*_STEP_WORDS, "a number"], at="--step"))


def find_trials(run_or_trial: str | os.PathLike[str]) -> list[TrialDir]:
    """Returns the trials that a path means.

    Raises:
      ConfigError: If there are none.
    """
    path = pathlib.Path(run_or_trial)
    trials = rundir.find_trials(path)
    if trials:
        return trials
    if RunDir(path).exists():
        raise ConfigError(f"{path}: this run has no trials yet.")
    if path.exists():
        raise ConfigError(f"{path}: neither a run directory (no sweep.json) nor a trial (no config.json).")
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    siblings = sorted(entry.name for entry in beside if RunDir(entry).exists() or TrialDir(entry).exists())
    raise ConfigError(unknown_name("run or trial", path.name, siblings, at=str(path.parent)))


def _plan(trials: list[TrialDir], request: _Request, chosen_by: dict[str, None]) -> tuple[list[Task], list[Record]]:
    """Returns the evaluations to make, and a record for each trial that has no such checkpoint."""
    tasks: list[Task] = []
    missing: list[Record] = []
    damaged: list[Record] = []
    for trial in trials:
        try:
            names = _evaluators(trial, request)
        except DamagedFile as error:
            if len(trials) == 1:
                raise
            damaged.append(_skipped(trial, request.as_name or "-", request.step, str(error)))
            continue
        steps = rundir.committed_steps(trial.checkpoints)
        if request.step == "best" and steps:
            steps = [_best_step(trial, request, chosen_by)]
        found = _tasks(trial, names, steps, request)
        if not found and request.step != "due":
            error = "there is no checkpoint" if not steps else f"there is no checkpoint at step {request.step}"
            missing += [_skipped(trial, request.as_name or name, request.step, error) for name in names]
        tasks += found
    if missing and len({record["trial"] for record in missing}) == len(trials) - len(damaged):
        raise ConfigError(_no_checkpoint(trials, request.step))
    return tasks, [*damaged, *missing]


def _tasks(trial: TrialDir, names: list[str], steps: list[int], request: _Request) -> list[Task]:
    if request.step == "due":
        rundir.record_removed(trial, trial_lib.wanted(trial), finished=rundir.has_ended(trial))
        return [Task(trial, name, step) for name, step in ledger.due(trial, finished=True) if name in names]
    wanted = {"latest": steps[-1:], "best": steps, "all": steps}.get(
        str(request.step), [found for found in steps if found == request.step]
    )
    return [Task(trial, name, step) for step in wanted for name in names]


def _best_step(trial: TrialDir, request: _Request, chosen_by: dict[str, None]) -> int:
    from kauldron_core.train import best_checkpoint  # JAX, which planning other steps does without.

    best = best_checkpoint(trial, metric=request.metric, mode=request.mode, at="--metric")
    chosen_by[str(best.ranking)] = None
    return best.step


def _evaluators(trial: TrialDir, request: _Request) -> list[str]:
    """Returns the evaluators to run on a trial, after a look at what they recorded before."""
    cfg = trial_lib.read_config(trial, request.changes)
    available = list(evaluator_nodes(cfg))
    standalone = [name for name in available if name in trial_lib.standalone_strategies(trial)]
    if request.step == "due" and request.changes.evals:
        raise ConfigError(
            "--step=due: it goes by the evaluators of the experiment, not of another file. Use --step=all."
        )
    if request.names is None:
        names = standalone if standalone or request.step == "due" else available
    else:
        names = list(dict.fromkeys(request.names))
    for name in names:
        if name not in available:
            raise ConfigError(unknown_name("evaluator", name, available, at="--evals"))
    if not names and request.step != "due":
        raise ConfigError(f"{trial.config_path}: evals: this trial has no evaluators.")
    _check_names(trial, names, request)
    for name in names:
        _check_unchanged(trial, request.as_name or name, evaluator_fingerprint(cfg, name))
    return names


def _check_names(trial: TrialDir, names: list[str], request: _Request) -> None:
    if request.as_name is None:
        return
    rundir.check_name(request.as_name, kind="evaluator", at="--as")
    if len(names) != 1:
        raise ConfigError(
            f"--as: {request.as_name!r} can name one evaluator, not {len(names)}. Add --evals={names[0]}."
        )
    taken = ("train", *evaluator_nodes(trial_lib.read_config(trial)))
    if request.as_name in taken and request.as_name != names[0]:
        raise ConfigError(f"--as: the name {request.as_name!r} is taken in this experiment. Choose another.")


def _check_unchanged(trial: TrialDir, name: str, fingerprint: str) -> None:
    """Refuses to mix the numbers of two evaluators under one name."""
    folder = trial.evals / name
    for (recorded, step), record in rundir.read_eval_results(trial).items() if folder.is_dir() else ():
        if recorded == name and record.get("fingerprint") not in ("", None, fingerprint):
            raise ConfigError(
                f"evals.{name}: not the evaluator that gave the result at step {step} of {trial.name}. "
                f"Record it under another name: --as={_free_name(trial, name)}."
            )


def _free_name(trial: TrialDir, name: str) -> str:
    number = 2
    while (trial.evals / f"{name}-{number}").exists():
        number += 1
    return f"{name}-{number}"


def _no_checkpoint(trials: list[TrialDir], step: Step) -> str:
    steps = sorted({found for trial in trials for found in rundir.committed_steps(trial.checkpoints)})
    where = trials[0].name if len(trials) == 1 else f"{len(trials)} trials"
    if not steps:
        return f"--step: there is no checkpoint in {where} yet."
    nearest = min(steps, key=lambda found: abs(found - int(step)))
    listed = ", ".join(map(str, steps if len(steps) <= 12 else [*steps[:6], "...", *steps[-5:]]))
    return f"--step: unknown step {step!r}. Did you mean {nearest}? Available: {listed}, latest, best, all."


def _skipped(trial: TrialDir, name: str, step: Step, error: str) -> Record:
    return {"trial": trial.name, "evaluator": name, "step": step, "status": "skipped", "values": {}, "error": error}
