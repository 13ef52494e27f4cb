"""The value objects of a sweep: what is asked for (`Sweep`), what will run (`Plan`) and what watches it (`Sidecar`).

Nothing here imports Ray or JAX, so a config file, the command line and a test can use it for free.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from kauldron_core import masking, rundir
from kauldron_core.errors import ConfigError, unknown_name
from ray_cluster.results import Results
from ray_cluster.workers.stopping import StopRule, read_rules

if TYPE_CHECKING:
    from ray_cluster.searches.spaces import Point, SearchSpace  # brings the config library with it

Resources = Mapping[str, float]

FORWARDED_VARIABLES = (
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "LIBTPU_INIT_ARGS",
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_DEBUG_NANS",
    "JAX_ENABLE_X64",
    "JAX_TRACEBACK_FILTERING",
    "TPU_SKIP_MDS_QUERY",
    "HF_HOME",
    "TFDS_DATA_DIR",
    "MLFLOW_TRACKING_URI",
)
"""Variables of the driver's environment that every actor gets too, when they are set."""


SEARCHERS = {"optuna": "ray.tune.search.optuna.OptunaSearch", "random": "ray.tune.search.optuna.OptunaSearch"}
TUNE_SCHEDULERS = {
    "asha": "ray.tune.schedulers.ASHAScheduler",
    "median": "ray.tune.schedulers.MedianStoppingRule",
    "hyperband": "ray.tune.schedulers.HyperBandScheduler",
    "pbt": "ray.tune.schedulers.PopulationBasedTraining",
}
"""Short names of what Ray Tune brings; anything else is given by its dotted name."""

PACK_RULES = ("halving", "population")
"""Schedulers of trials that train in one program; all others are those of Ray Tune."""

SEED_PATH = "seed"
"""The leaf of a config that `Sweep.seeds` repeats points over."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a user asks for beside the experiment itself; `--run.PATH=VALUE` overrides a field.

    Attributes:
      name: Name of the run directory under `root`; None makes `<config>-<date-time>`.
      root: Folder of all runs.
      resources: What one trial owns, in Ray's names: `{'CPU': 1}`, `{'GPU': 0.5}`.
      accelerator: Generation of the TPU slice that a trial owns: `v4`, `v5p`, `v5litepod`, `v6e`, `v7x`.
      topology: Shape of that slice in chips: `4x4`, `2x2x2`. One process a host trains on it, each with as many chips
        as `resources` say (`{'TPU': 4}`), and `hosts` follows from that.
      hosts: How many processes train one trial together, as one `jax.distributed` job; each owns `resources`, on any
        node. If one dies all of them start again from the last checkpoint.
      max_concurrent: Most trials at a time; None means as many as the cluster carries.
      pack: Whether trials that differ only in numbers train together in one program: `auto` where that is faster,
        `off`, or the most trials of one program.
      max_failures: How often a trial is resumed after a kill, a lost node or a hang. An exception is retried once; the
        same exception text twice ends the trial.
      metric: Name of the metric that ranks trials, such as `test/metrics/accuracy`.
      mode: Whether the best trial has the largest or the smallest metric; where unset the metric says it.
      stop: Where a trial ends before its last step: `train/losses/total<=0.01`, a metric of training or of an evaluator
        inside it, `<=` or `>=`, and a number; several with commas between them, or as a list. The first one that a
        record meets ends the trial at that step: it saves, makes its last evaluations, and is `stopped`.
      num_samples: Points drawn from random axes.
      seed: Seed of random axes.
      seeds: How often each point runs, with the config's `seed` and those after it; results come in groups then.
      search: Searcher that chooses points while trials run: `optuna`, `optuna(seed=3)`, or the dotted name of any
        other Tune Searcher with arguments. None: all points stand before the first trial starts.
      scheduler: What ends trials early, or changes them: `asha`, `median`, `hyperband`, `pbt`, with arguments or
        without, or the dotted name of any other Tune scheduler. Its time is the training step. `halving` and
        `population` compare the trials of one pack with each other while it trains: all have to be in one.
      hang_timeout_s: Seconds without a sign of life of a trial after which its process is killed and the trial resumed.
        None: never.
      time_budget_s: Seconds after which all running trials save and the sweep ends, to be gone on with later.
      env: Variables set in every trial and evaluator, beside the forwarded ones (`FORWARDED_VARIABLES`). The run keeps
        their names and no value; a run that goes on asks for each, and None says that one is left out.
      working_dir: Folder, or .zip file, that is sent to the nodes of the cluster and is the working directory there. On
        a Ray of our own, where the code is anyway, nothing is sent; inside a Ray job the job brings it.
      py_modules: Folder of a package, or .whl file, that is sent along likewise; or a list of them.
      excludes: What of them stays behind, as a pattern of .gitignore or a list; `.env`, `.git`, `.venv` and runs do
        always.
    """

    name: str | None = None
    root: str = "runs"
    resources: Resources = field(default_factory=lambda: {"CPU": 1})
    accelerator: str | None = None
    topology: str | None = None
    hosts: int = 1
    max_concurrent: int | None = None
    pack: Literal["auto", "off"] | int = "auto"
    max_failures: int = 2
    metric: str | None = None
    mode: Literal["max", "min"] | None = None
    stop: str | Sequence[str] = ()
    num_samples: int = 1
    seed: int = 0
    seeds: int = 1
    search: str | None = None
    scheduler: str | None = None
    hang_timeout_s: float | None = None
    time_budget_s: float | None = None
    env: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    working_dir: str | None = None
    py_modules: str | Sequence[str] = ()
    excludes: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            object.__setattr__(self, name, _plain(value))
        object.__setattr__(self, "resources", {name: _plain(amount) for name, amount in self.resources.items()})
        check_resources(self.resources, at="run.resources")
        self._check_env()
        rundir.refuse_address(self.root, at="run.root")
        rundir.refuse_address(self.name or "", at="run.name")
        if self.mode is not None and self.mode not in rundir.MODES:
            raise ConfigError(f"run.mode: {self.mode!r} is neither 'max' nor 'min'.")
        for name, least in (("max_failures", 0), ("num_samples", 1), ("max_concurrent", 1), ("seeds", 1), ("hosts", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"run.{name}: {value} is too small; the least is {least}.")
        if self.pack not in ("auto", "off") and (isinstance(self.pack, str) or self.pack < 1):
            raise ConfigError(f"run.pack: {self.pack!r} is neither 'auto' nor 'off' nor a number of trials above 0.")
        read_rules(self.stop)
        if self.tpu_slice is not None:
            # The fields that other parts look at say the same as the slice.
            object.__setattr__(self, "hosts", self._hosts_of(self.tpu_slice))
        for at, text, known in (
            ("run.search", self.search, SEARCHERS),
            ("run.scheduler", self.scheduler, (*TUNE_SCHEDULERS, *PACK_RULES)),
        ):
            name = _name_of(text)
            if text is not None and "." not in name and name not in known:
                raise ConfigError(unknown_name(at.partition(".")[2], name, known, at=at))
        if (self.is_adaptive or self.pack_rule is not None) and self.metric is None:
            raise ConfigError("run.metric: a search or scheduler needs one. Example: --run.metric=train/losses/total")
        if self.pack_rule is not None and (self.search is not None or self.pack == "off"):
            other = "run.pack=off" if self.search is None else "run.search"
            raise ConfigError(f"run.scheduler={self.scheduler}: compares trials of one pack; leave {other} out.")

    def _check_env(self) -> None:
        """Refuses variables without a value; those of the others show in no message of this process from now on."""
        for name, value in self.env.items():
            if value == masking.MASK:
                raise ConfigError(f"run.env.{name}: {value} stands for a value that is kept nowhere. Write the value.")
        masking.keep_secret(*(str(value) for value in self.env.values() if value is not None))

    @property
    def is_adaptive(self) -> bool:
        """Whether Tune makes, ends or changes trials by how others do."""
        return self.search is not None or (self.scheduler is not None and self.pack_rule is None)

    @property
    def pack_rule(self) -> str | None:
        """The scheduler, if it is one that works inside a pack."""
        name = _name_of(self.scheduler)
        return name if name in PACK_RULES else None

    @property
    def tpu_slice(self) -> TpuSlice | None:
        """The TPU slice that each trial owns."""
        if self.accelerator is None and self.topology is None:
            return None
        if self.accelerator is None or self.topology is None:
            missing = "accelerator" if self.accelerator is None else "topology"
            raise ConfigError(
                f"run.{missing}: a TPU slice needs it, too. Example: --run.accelerator=v6e --run.topology=4x4"
            )
        return TpuSlice(self.accelerator.lower().removeprefix("tpu-"), self.topology.lower())

    def _hosts_of(self, asked: TpuSlice) -> int:
        chips = self.resources.get("TPU", 0)
        if not chips or asked.num_chips % chips:
            raise ConfigError(
                f"run.resources: a slice {asked} has {asked.num_chips} chips, and each of its hosts an equal part. Say"
                f" how many, such as {{'TPU': {min(4, asked.num_chips)}}}; got {dict(self.resources)}."
            )
        hosts = int(asked.num_chips // chips)
        if self.hosts not in (1, hosts):
            raise ConfigError(f"run.hosts: {self.hosts}, and a slice {asked} has {hosts} with {chips:g} chips each.")
        return hosts

    @property
    def stop_rules(self) -> tuple[StopRule, ...]:
        """What `stop` says."""
        return read_rules(self.stop)

    @property
    def is_population(self) -> bool:
        """Whether the points of trials change while they run."""
        return (self.scheduler or "").startswith("pbt")


@dataclass(frozen=True)
class TpuSlice:
    """A whole slice of TPU chips that are wired to each other.

    Attributes:
      generation: `v6e`.
      topology: `4x4`.
    """

    generation: str
    topology: str

    def __post_init__(self) -> None:
        sizes = self.topology.split("x")
        if not (len(sizes) in (2, 3) and all(size.isdecimal() and int(size) for size in sizes)):
            raise ConfigError(f"run.topology: {self.topology!r} is no shape. Write AxB or AxBxC: 4x4, 2x2x2")

    @property
    def num_chips(self) -> int:
        """How many chips it has."""
        return math.prod(map(int, self.topology.split("x")))

    def __str__(self) -> str:
        return f"{self.generation} {self.topology}"


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """One point of a sweep, ready to run.

    Attributes:
      name: Name of its folder under `RUN/trials`, unique and short.
      index: Position in the sweep; for display only.
      fingerprint: Stable identity of the point.
      config_json: The text of its `config.json`, references kept, `workdir` unset.
      overrides: `(path, value)` pairs that tell it from the base config.
      resources: What it needs, where that differs from the sweep's `resources`.
    """

    name: str
    index: int
    fingerprint: str
    config_json: str
    overrides: tuple[tuple[str, Any], ...] = ()
    resources: Resources | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedPack:
    """Trials that one worker trains together, in one program.

    Attributes:
      name: Name of its folder under `RUN/packs`.
      trials: Names of its trials, in the order of its rows.
      content: What else its worker has to know, as JSON can hold it.
    """

    name: str
    trials: tuple[str, ...]
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EvalPool:
    """Evaluator actors that serve all trials of a sweep.

    Attributes:
      evaluators: Names of the stand-alone evaluators that it runs.
      job_group: Name of the group; evaluators of one group and equal resources share a pool.
      resources: What one actor owns. Empty: nothing is reserved, and the actor runs at low priority.
      num_actors: Actors in the pool.
    """

    evaluators: tuple[str, ...]
    job_group: str = "eval"
    resources: Resources = field(default_factory=dict)
    num_actors: int = 1

    def __post_init__(self) -> None:
        check_resources(self.resources, at=f"evaluator pool {self.job_group!r}")


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """What a search or scheduler needs to know.

    Attributes:
      space: What can be chosen.
      make_trial: Makes the trial of an index at a point.
      num_steps: Steps of a trial.
      save_every: Steps between its checkpoints.
    """

    space: SearchSpace
    make_trial: Callable[[int, Point], PlannedTrial]
    num_steps: int
    save_every: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything the driver needs; made by `pipelines` after all configs have resolved once.

    Attributes:
      sweep: The run spec.
      run_dir: The run directory (absolute inside a Ray job).
      trials: All trials of the sweep, those already done in `run_dir` too.
      packs: Which of the trials train together; the others train alone.
      pools: Evaluator pools; see `eval_pools`.
      trust: Packages whose names configs may call, beside the built-in list (`konfig.trusted_packages()`).
      env: Variables for every actor, on top of `sweep.env`.
      python_path: Folders put on every actor's path beside the working directory.
      retry_failed: Run trials that failed or were stopped again.
      search: What a search or scheduler needs; None without one.
      directions: What is better of each metric, as far as the experiments say it.
      ranking: What ranks the trials; where unset `sweep.metric`, if there is one.
      description: What is written to `sweep.json` beside the trials: config file, command, base fingerprint.
    """

    sweep: Sweep
    run_dir: str
    trials: tuple[PlannedTrial, ...]
    packs: tuple[PlannedPack, ...] = ()
    pools: tuple[EvalPool, ...] = ()
    trust: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    python_path: tuple[str, ...] = ()
    retry_failed: bool = False
    search: SearchPlan | None = None
    directions: rundir.Directions = field(default_factory=rundir.Directions)
    ranking: rundir.Ranking | None = None
    description: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [trial.name for trial in self.trials]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise ConfigError(f"plan: trial name {twice[0]!r} is used twice.")
        if not names and self.sweep.search is None:
            raise ConfigError("plan: there are no trials.")
        if self.ranking is None and self.sweep.metric is not None:
            asked = rundir.choose_ranking(self.directions, metric=self.sweep.metric, mode=self.sweep.mode)
            object.__setattr__(self, "ranking", asked)


@runtime_checkable
class Sidecar(Protocol):
    """Something that watches a run from the driver: the MLflow recorder, the live table.

    Each runs in a thread of its own. An exception ends this sidecar, is kept in `Results.sidecar_errors` and warned of;
    it never stops training. `start` may be slow (it runs beside Ray's own start).
    """

    def start(self, run_dir: rundir.RunDir) -> None:
        """Called once; `sweep.json` and every trial's `config.json` and `status.json` exist."""

    def poll(self) -> None:
        """Called about once a second until the sweep has ended."""

    def close(self, results: Results) -> None:
        """Called once at the end, after interruptions too; everything is on disk by now."""


def _name_of(call: str | None) -> str:
    """Returns `name` of `name(argument=value)`; empty where there is none."""
    return (call or "").partition("(")[0].strip()


def _plain(value: Any) -> Any:
    """Returns a number of NumPy as one of Python, which a file of the run can hold; anything else as it is."""
    if isinstance(value, bool | int | float) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def check_resources(resources: Resources, *, at: str) -> None:
    """Refuses amounts that are not positive finite numbers."""
    for name, amount in resources.items():
        if isinstance(amount, bool) or not isinstance(amount, numbers.Real):
            raise ConfigError(f"{at}: {name} must be a number, got {amount!r}.")
        if not math.isfinite(amount) or amount <= 0:
            raise ConfigError(f"{at}: {name} must be positive, got {amount!r}.")


def eval_pools(strategies: Iterable[Mapping[str, Any]]) -> tuple[EvalPool, ...]:
    """Returns one pool per (job group, resources) over the trials' run strategies.

    Args:
      strategies: For each trial (or each distinct structure) the evaluators' run strategies by name; those that are not
        stand-alone are skipped.
    """
    groups: dict[tuple[str, tuple[tuple[str, float], ...]], dict[str, None]] = {}
    for by_name in strategies:
        for name, strategy in by_name.items():
            if strategy.is_standalone:
                key = (strategy.job_group, tuple(sorted((strategy.resources or {}).items())))
                groups.setdefault(key, {})[name] = None
    return tuple(
        EvalPool(evaluators=tuple(names), job_group=job_group, resources=dict(resources))
        for (job_group, resources), names in groups.items()
    )
