"""The stages of a pipeline: each says what it needs, does its work once, and leaves a small record.

A stage that was interrupted is simply run again: sweeps go on from their run directory, evaluations from their ledger.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import evaluators
from kauldron_core import konfig, rundir, sweeps
from kauldron_core.errors import ConfigError, RunFailed, unknown_name
from pipelines import experiment as experiments
from pipelines import planning, sources
from pipelines.cli.run import DONE
from pipelines.cli.words.command import Command
from pipelines.donors import check_donor
from pipelines.evaluate import own_variables
from pipelines.report import directions_of_run, make_console, make_table, number, ranking_of
from pipelines.sweep import start
from pipelines.watching import watchers
from ray_cluster import spec
from ray_cluster.results import find_repeats
from ray_cluster.workers import inheriting

Record = dict[str, Any]
"""What a stage leaves: plain data, kept in the pipeline's folder."""


@dataclass(frozen=True)
class Context:
    """What a stage may know.

    Attributes:
      root: The pipeline's folder; each sweep is a run in it.
      name: Name of the stage.
      records: What the stages before have left, by name.
      address: Ray to join.
      tracking: Whether to record in MLflow.
      config_files: Config files of the pipeline's sweeps, which the user has named with the pipeline.
      trust_run: Whether stages may call the code that the runs of those before them keep.
    """

    root: Path
    name: str
    records: Mapping[str, Record]
    address: str | None = None
    tracking: bool = True
    config_files: tuple[str, ...] = ()
    trust_run: bool = False

    def trust_code(self, run: rundir.RunDir) -> None:
        """Makes the code of a stage before callable, also where that stage was done by another process.

        Config files that were changed or removed since are found in the run, as they were (`trust_run`).
        """
        for path in self.config_files:
            experiments.import_named_file(path)
        if self.trust_run:
            konfig.trust_run(run)

    def run_of(self, stage: str) -> rundir.RunDir:
        """Returns the run directory that a stage before has made, or has chosen from."""
        name = rundir.check_name(self.records[stage]["run"], kind="run", at=f"stages.{stage}")
        return rundir.RunDir(self.root / name)


class Stage(Protocol):
    """One stage of a pipeline."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the stages that must be done before."""
        ...

    def run(self, context: Context) -> Record:
        """Does the work, or what is missing of it.

        Raises:
          RunFailed: If not everything could be done.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class SweepStage:
    """Trains and evaluates the trials of a sweep.

    Attributes:
      config: The config file.
      cfg: Overrides by path.
      sweep: Axis texts by path, as after `--sweep.`.
      run_spec: Fields of the run spec, as after `--run.`; the name and the root are the pipeline's business.
    """

    config: str
    cfg: Mapping[str, Any] = field(default_factory=dict)
    sweep: Mapping[str, str] = field(default_factory=dict)
    run_spec: Mapping[str, Any] = field(default_factory=dict)

    needs = ()

    @property
    def words(self) -> Command:
        """Its command, sorted."""
        return Command(config=self.config, cfg=_texts(self.cfg), sweep=_texts(self.sweep))

    def run(self, context: Context) -> Record:
        """Runs the sweep."""
        run_spec, words = _read_spec(self.run_spec, context), self.words
        return _run_sweep(lambda: planning.prepare(words, run_spec, command=_command(context)), run_spec, context)


@dataclass(frozen=True, kw_only=True)
class SelectStage:
    """Chooses the best trials of a sweep.

    Attributes:
      of: The stage of the sweep.
      metric: What counts; where unset what ranks the trials of the sweep.
      mode: Which end of it is the best; where unset the metric says it.
      top: How many.
    """

    of: str
    metric: str | None = None
    mode: rundir.Mode | None = None
    top: int = 1

    @property
    def needs(self) -> tuple[str, ...]:
        """The sweep."""
        return (self.of,)

    def run(self, context: Context) -> Record:
        """Ranks the trials by the last value of the metric."""
        run = context.run_of(self.of)
        rows = [row for row in rundir.read_table(run.path / "results.parquet") if isinstance(row.get("trial"), str)]
        known = {name for row in rows for name, value in row.items() if _is_number(value)}
        missing = f"stages.{context.name}.metric: no trial of stage {self.of!r} has"
        if self.metric is not None and self.metric not in known:
            raise ConfigError(f"{missing} {self.metric!r}.")
        directions = directions_of_run(run)
        ranking = ranking_of(run, known, directions=directions, metric=self.metric, mode=self.mode)
        measured = [row for row in rows if ranking is not None and _is_number(row.get(ranking.metric))]
        measured = [row for row in measured if ranking is not None and not ranking.badness(row[ranking.metric])[0]]
        if ranking is None or not measured:
            raise ConfigError(f"{missing} {'a metric' if ranking is None else f'a finite {ranking.metric!r}'}.")
        ranked = sorted(measured, key=lambda row: ranking.badness(row[ranking.metric]))[: self.top]
        chosen = [{"trial": row["trial"], "value": row[ranking.metric]} for row in ranked]
        return {"run": run.name, "metric": ranking.metric, "direction": ranking.direction, "chosen": chosen}


@dataclass(frozen=True, kw_only=True)
class RetrainStage:
    """Trains chosen trials again: longer, with more seeds, from the start or from where they ended.

    Attributes:
      of: The stage that chose them.
      cfg: Overrides by path, such as a larger `num_train_steps`.
      seeds: With how many seeds each.
      start_from: `config` starts anew, `checkpoint` from the newest one of the chosen trial.
      run_spec: Fields of the run spec.
    """

    of: str
    cfg: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 1
    start_from: Literal["config", "checkpoint"] = "config"
    run_spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs(self) -> tuple[str, ...]:
        """The stage that chose."""
        return (self.of,)

    def run(self, context: Context) -> Record:
        """Runs them as a sweep of its own."""
        source, chosen = context.run_of(self.of), [row["trial"] for row in context.records[self.of]["chosen"]]
        run_spec = replace(_read_spec(self.run_spec, context), seeds=self.seeds)

        def prepare() -> planning.Prepared:
            context.trust_code(source)
            experiment = sources.read_experiment(source)
            konfig.apply_overrides(experiment.config, [f"{path}={text}" for path, text in _texts(self.cfg)])
            standing = {trial.name: trial.overrides for trial in sources.made_trials(source)}
            for name in chosen:
                if name not in standing:
                    raise ConfigError(unknown_name("trial", name, standing, at=f"stages.{self.of}"))
            points = {name: _without_seed(standing[name], self.seeds) for name in chosen}
            # Of trials that differ in their seed alone the best one stands for all.
            firsts = {repr(points[name]): name for name in reversed(chosen)}
            kept = [name for name in chosen if name in firsts.values()]
            axes = [sweeps.from_points([points[name] for name in kept])]
            prepared = planning.prepare_experiment(experiment, axes, run_spec, command=_command(context))
            if self.start_from == "checkpoint":
                for at, trial in enumerate(prepared.plan.trials):
                    _lay_checkpoint(source.trial(kept[at // self.seeds]), prepared, trial)
            return prepared

        return _run_sweep(prepare, run_spec, context)


@dataclass(frozen=True, kw_only=True)
class EvaluateStage:
    """Evaluates the checkpoints of a stage's trials on other data.

    Attributes:
      of: The stage of the sweep.
      evaluators: Names of evaluators; None takes the stand-alone ones, else all.
      cfg: Overrides by path, such as another `evals.test.ds.loader`; they need `record_as`.
      record_as: Name of the results.
      step: `latest`, `all` or a step.
    """

    of: str
    evaluators: tuple[str, ...] | None = None
    cfg: Mapping[str, Any] = field(default_factory=dict)
    record_as: str | None = None
    step: str | int = "latest"

    @property
    def needs(self) -> tuple[str, ...]:
        """The sweep."""
        return (self.of,)

    def run(self, context: Context) -> Record:
        """Evaluates what has no result yet, in this process."""
        run = context.run_of(self.of)
        context.trust_code(run)
        own_variables(run)  # Says which are not set here.
        records = evaluators.evaluate_run(
            run.path,
            step=self.step,  # type: ignore[arg-type] - it refuses other words
            names=list(self.evaluators) if self.evaluators else None,
            as_name=self.record_as,
            overrides=[f"{path}={text}" for path, text in _texts(self.cfg)],
            trust=konfig.trusted_packages(),
        )
        failed = [record for record in records if record["status"] != "done"]
        if failed:
            raise RunFailed(f"stage {context.name}: {failed[0]['trial']}: {failed[0].get('error')}")
        rows = [{key: record[key] for key in ("trial", "evaluator", "step", "values")} for record in records]
        return {"run": run.name, "results": rows}


@dataclass(frozen=True, kw_only=True)
class ReportStage:
    """Writes a table of a stage's results into `report.md` of the pipeline's folder, seeds taken together.

    Attributes:
      of: The stage of an evaluation.
      metric: What it is sorted by, such as `metrics/accuracy`.
      mode: Which end of it is the best; where unset the metric says it.
    """

    of: str
    metric: str
    mode: rundir.Mode | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The evaluation."""
        return (self.of,)

    def run(self, context: Context) -> Record:
        """Writes and prints the table."""
        run, results = context.run_of(self.of), context.records[self.of]["results"]
        values = {row["trial"]: float(row["values"][self.metric]) for row in results if self.metric in row["values"]}
        if not values:
            raise ConfigError(f"stages.{context.name}.metric: stage {self.of!r} has no {self.metric!r}.")
        measured_by = next((str(row.get("evaluator", "")) for row in results), "")
        mode = directions_of_run(run).mode(f"{measured_by}/{self.metric}", self.mode, at=f"stages.{context.name}.mode")
        ranking = rundir.Ranking(self.metric, mode)
        table = sorted(
            (
                (name, statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None, len(found))
                for name, found in _over_seeds(sources.listed_trials(run), values).items()
            ),
            key=lambda row: ranking.badness(row[1]),
        )
        lines = [f"| point | {ranking} | std | n |", "|---|---|---|---|"]
        lines += [f"| {name} | {number(mean)} | {number(std)} | {n} |" for name, mean, std, n in table]
        rundir.write_atomic(context.root / "report.md", "\n".join(lines) + "\n")
        console = make_console()
        rows = [[name, number(mean), number(std), str(n)] for name, mean, std, n in table]
        columns = [("point", "left"), (self.metric, "right"), ("std", "right"), ("n", "right")]
        console.print(make_table(columns, rows, width=console.width))
        console.print(f"ranked by {ranking}", markup=False, soft_wrap=True)
        return {"run": run.name, "report": "report.md", "best": {"point": table[0][0], "mean": table[0][1]}}


def _run_sweep(prepare: Any, run_spec: spec.Sweep, context: Context) -> Record:
    with watchers(run_spec, no_tracking=not context.tracking) as (report, recorder):
        status = start(prepare(), report=report, recorder=recorder, address=context.address)
    if status != DONE:
        raise RunFailed(f"stage {context.name}: not everything is done in {context.root / context.name}")
    return {"run": context.name}


def _lay_checkpoint(source: rundir.TrialDir, prepared: planning.Prepared, trial: spec.PlannedTrial) -> None:
    """Puts the newest checkpoint of a trial where a new trial begins; nothing happens where one has begun."""
    folder = rundir.RunDir(prepared.plan.run_dir).trial(trial.name)
    if trial.name in prepared.trainers:
        check_donor(source, folder, prepared.trainers[trial.name], at="start_from")
    folder.create(trial.config_json)
    inheriting.begin_from(source, folder)


def _without_seed(point: tuple[tuple[str, Any], ...], seeds: int) -> tuple[tuple[str, Any], ...]:
    """Returns a point without its seed where seeds are repeated."""
    return tuple(pair for pair in point if seeds == 1 or pair[0] != spec.SEED_PATH)


def _read_spec(fields: Mapping[str, Any], context: Context) -> spec.Sweep:
    words = Command(run=_texts({**fields, "name": context.name, "root": str(context.root)}))
    return experiments.read_spec(words)


def _texts(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Returns overrides as texts of the grammar; a text stands for what it would on the command line."""
    return tuple((path, value if isinstance(value, str) else repr(_plain(value))) for path, value in values.items())


def _plain(value: Any) -> Any:
    """Returns a resolved value as Python writes it."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return value


def _command(context: Context) -> str:
    return f"kdr pipeline run, stage {context.name}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and value == value


def _over_seeds(trials: Sequence[sweeps.Trial], values: Mapping[str, float]) -> dict[str, list[float]]:
    """Returns the values of trials that differ in their seed alone, by what they share; repeats are left out."""
    groups: dict[str, list[float]] = {}
    repeats = find_repeats(trials)
    for trial in trials:
        if trial.name in values and trial.name not in repeats:
            shared = ", ".join(f"{path}={value}" for path, value in trial.overrides if path != spec.SEED_PATH)
            groups.setdefault(shared or "all", []).append(values[trial.name])
    return groups
