"""What a trial's config says about its evaluators, read without building the experiment."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kauldron_core import konfig, sweeps
from kauldron_core.errors import ConfigError, DamagedFile
from kauldron_core.evaluator_nodes import evaluator_nodes, read_by_evaluator
from kauldron_core.rundir import DEFAULT_MAX_PENDING, Strategy, TrialDir, Wanted


class _Known:
    """Stands for one of our own strategies: building the real one imports JAX, and the driver only needs this much."""

    def __init__(
        self,
        due_steps: Callable[[list[int], bool], list[int]] | None = None,
        *,
        min_interval_s: float = 0.0,
        counts_removed: bool = False,
    ):
        self.is_standalone = due_steps is not None
        self.min_interval_s = min_interval_s
        self.counts_removed = counts_removed
        self._due_steps = due_steps

    def due_steps(self, checkpoint_steps: Iterable[int], is_final: bool) -> list[int]:
        return self._due_steps(sorted(checkpoint_steps), is_final) if self._due_steps else []


def _every_checkpoint(run: konfig.ConfigDict) -> _Known:
    return _Known(lambda steps, is_final: steps, min_interval_s=float(run.get("min_interval_s") or 0.0))


def _every_n(run: konfig.ConfigDict) -> _Known:
    interval = int(run.n)
    return _Known(
        lambda steps, is_final: sorted({*steps[interval - 1 :: interval], *(steps[-1:] if is_final else [])}),
        counts_removed=True,
    )


KNOWN: dict[str, Callable[[konfig.ConfigDict], _Known]] = {
    "EveryNSteps": lambda run: _Known(),
    "Once": lambda run: _Known(),
    "Final": lambda run: _Known(),
    "EveryNCheckpoints": _every_n,
    "StandaloneEveryCheckpoint": _every_checkpoint,
    "StandaloneLastCheckpoint": lambda run: _Known(lambda steps, is_final: steps[-1:] if is_final else []),
}


@dataclasses.dataclass(frozen=True)
class Changes:
    """How an evaluation differs from what the trial's config says.

    Attributes:
      overrides: Changed settings, `evals.test.num_batches=2`.
      evals: Evaluators by name, beside those of the config or in their place.
    """

    overrides: tuple[str, ...] = ()
    evals: Mapping[str, konfig.ConfigDict] = dataclasses.field(default_factory=dict)

    def key(self) -> tuple[Any, ...]:
        """Returns what equal changes share."""
        return self.overrides, tuple((name, konfig.fingerprint(node)) for name, node in sorted(self.evals.items()))


def read_config(trial_dir: str | os.PathLike[str], changes: Changes | None = None) -> konfig.ConfigDict:
    """Returns a trial's config with changes applied.

    Raises:
      ConfigError: If an override doesn't fit.
    """
    changes = changes or Changes()
    cfg = konfig.load(TrialDir(trial_dir).config_path)
    if changes.evals and cfg.get("evals") is None:
        cfg.evals = {}
    for name, node in changes.evals.items():
        cfg.evals[name] = node
    if changes.overrides:
        konfig.apply_overrides(cfg, list(changes.overrides))
    return cfg


def read_evaluators(path: str | os.PathLike[str]) -> dict[str, konfig.ConfigDict]:
    """Returns the evaluators of a config file: its `evals`, or all of it if it holds nothing but evaluators.

    Raises:
      ConfigError: If there are none.
    """
    cfg = sweeps.load_config_file(os.fspath(path)).config.copy_and_resolve_references()
    found = evaluator_nodes(cfg) if "__qualname__" in cfg or "evals" in cfg else dict(cfg.items())
    if not found or not all(isinstance(node, konfig.ConfigDict) and "__qualname__" in node for node in found.values()):
        raise ConfigError(f"--evals: {os.fspath(path)} holds no evaluators, in `evals` or by name.")
    return found


def needed_resources(
    trials: Iterable[str | os.PathLike[str]], names: Collection[str] | None = None, changes: Changes | None = None
) -> dict[str, float]:
    """Returns what a process must own to run any of these evaluators: the largest amounts that their `run` names.

    Args:
      trials: The trials' folders.
      names: Which evaluators; None are all.
      changes: Changes of the configs.
    """
    needed: dict[str, float] = {}
    for trial_dir in trials:
        for name, node in evaluator_nodes(read_config(trial_dir, changes)).items():
            if names is None or name in names:
                for kind, amount in ((node.get("run") or {}).get("resources") or {}).items():
                    needed[kind] = max(needed.get(kind, 0.0), float(amount))
    return needed


def standalone_strategies(trial_dir: str | os.PathLike[str]) -> Mapping[str, Strategy]:
    """Returns when each stand-alone evaluator of a trial runs, by name. Our own strategies cost no JAX import."""
    path = TrialDir(trial_dir).config_path
    status = path.stat()
    return _strategies(os.fspath(path.absolute()), status.st_mtime_ns, status.st_size)


def wanted(trial_dir: str | os.PathLike[str]) -> Mapping[str, Wanted]:
    """Returns what each stand-alone evaluator of a trial wants of its checkpoints, by name.

    Where `max_pending` is unset, a limit stands only if the trial removes old checkpoints.
    """
    path = TrialDir(trial_dir).config_path
    status = path.stat()
    return _wanted(os.fspath(path.absolute()), status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=4096)
def _wanted(config_path: str, mtime_ns: int, size: int) -> Mapping[str, Wanted]:
    cfg = konfig.load(config_path)
    is_rotating = (cfg.get("checkpointer") or {}).get("max_to_keep") is not None
    nodes = evaluator_nodes(cfg)
    found = {}
    for name, strategy in _strategies(config_path, mtime_ns, size).items():
        run = nodes[name].get("run") or {}
        limit = run.get("max_pending")
        if limit is None and is_rotating:
            limit = DEFAULT_MAX_PENDING
        limit = None if limit is None else max(int(limit), 1)
        found[name] = Wanted(strategy, limit, run.get("when_behind") == "block")
    return found


@functools.lru_cache(maxsize=4096)
def _strategies(config_path: str, mtime_ns: int, size: int) -> Mapping[str, Strategy]:
    del mtime_ns, size  # In the cache's key: a config that was replaced is read again.
    cfg = konfig.load(config_path)
    evals = cfg.get("evals") or {}
    if not isinstance(evals, Mapping) or not all(node is None or isinstance(node, Mapping) for node in evals.values()):
        raise DamagedFile(f"{config_path}: damaged, its evals are no evaluators by name.")
    nodes = evaluator_nodes(cfg)
    strategies = {name: _strategy(node) for name, node in nodes.items()}
    return {name: strategy for name, strategy in strategies.items() if strategy.is_standalone}


def _strategy(node: konfig.ConfigDict) -> Any:
    run = node.get("run")
    if run is None:
        return konfig.resolve(node).run
    module, _, name = str(run.get("__qualname__", "")).partition(":")
    known = KNOWN.get(name.rpartition(".")[2]) if module.split(".")[0] == "kauldron_core" else None
    return known(run) if known else konfig.resolve(run)


def program_fingerprint(cfg: konfig.ConfigDict, name: str) -> str:
    """Returns what two trials must share to use one built evaluator: what it reads, and the model."""
    read = read_by_evaluator(cfg, name)
    return konfig.fingerprint({"evaluator": read, **{key: cfg.get(key) for key in _MODEL}})


_MODEL = ("model", "rng_streams", "seed", "sharding", "precision")
