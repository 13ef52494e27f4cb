"""What a trainer looks at when it is built, so that a mistake shows before anything starts."""

from __future__ import annotations

import sys
from typing import get_args

import jax

from kauldron_core import rundir
from kauldron_core.data import check_shares
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.evals import Evaluator
from kauldron_core.konfig.resolving.uncalled import refuse_uncalled
from kauldron_core.losses import named_losses
from kauldron_core.train.experiment import Experiment
from kauldron_core.train.step import checks
from kauldron_core.train.step.program import OnNonfinite


def check(trainer: Experiment) -> None:
    """Raises ConfigError if a part is missing, or a field holds what it can't."""
    for name in _OBJECTS:
        refuse_uncalled(getattr(trainer, name), at=name)
    for name in ("train_ds", "model", "optimizer"):
        if getattr(trainer, name) is None:
            raise ConfigError(f"{name}: unset. A Trainer needs train_ds, model, optimizer and train_losses.")
    nnx = sys.modules.get("flax.nnx")  # Not imported by us: who has such a module has imported it.
    if nnx is not None and isinstance(trainer.model, nnx.Module):
        raise ConfigError(
            "model: an NNX module holds arrays of its own. Describe it: kd.nn.Nnx(module=functools.partial(...), "
            "inputs='batch....')."
        )
    if trainer.workdir is not None:
        rundir.refuse_address(trainer.workdir, at="workdir")
    if not trainer.train_losses:
        raise ConfigError("train_losses: empty, there is nothing to minimise.")
    if trainer.on_nonfinite not in get_args(OnNonfinite):
        raise ConfigError(unknown_name("choice", trainer.on_nonfinite, get_args(OnNonfinite), at="on_nonfinite"))
    if trainer.remat is not None and trainer.remat not in (names := _remat_policies()):
        raise ConfigError(unknown_name("policy", trainer.remat, names, at="remat"))
    if trainer.profiler is not None and jax.config.jax_enable_pgle:  # pyright: ignore[reportAttributeAccessIssue]
        raise ConfigError(
            "profiler: JAX compiles with profiles of its own (JAX_ENABLE_PGLE), and one profile at a time can be made. "
            "Unset JAX_ENABLE_PGLE, or leave the profiler out: profiler=None."
        )
    checks.check_names(trainer.checkify_error_categories)
    if trainer.checkpointer is not None:
        trainer.checkpointer.check_evaluators(trainer.evals)
    for name, least in _LEAST.items():
        value = getattr(trainer, name)
        if value is not None and value < least:
            raise ConfigError(f"{name}: must be at least {least}, not {value}.")
    for name in trainer.evals:
        if name == "train":
            raise ConfigError("evals.train: the name is taken by the training metrics. Choose another.")
        rundir.check_name(name, kind="evaluator")
        run = getattr(trainer.evals[name], "run", None)
        if trainer.checkpointer is None and getattr(run, "is_standalone", False):
            raise ConfigError(
                f"evals.{name}.run: {type(run).__name__} evaluates checkpoints, and checkpointer is None, so there are "
                "none. Set checkpointer=kd.ckpts.Checkpointer(), or run it inside training: run=kd.evals.Final()."
            )


def check_best_metric(trainer: Experiment) -> None:
    """Refuses a metric by which no checkpoint will ever be best, where it is known what there will be."""
    metric = None if trainer.checkpointer is None else trainer.checkpointer.best_metric
    name, _, key = (metric or "").partition("/")
    evaluator = trainer.evals.get(name)
    if type(evaluator) is not Evaluator or evaluator.losses is None or evaluator.metrics is None:
        return
    losses = ["total", *dict(named_losses(evaluator.losses))]
    groups = {loss[:end] for loss in losses for end, letter in enumerate(loss) if letter == "/"}
    known = [f"losses/{loss}" for loss in losses] + [f"metrics/{metric}" for metric in evaluator.metrics]
    is_part = any(key == known_key or key.startswith(f"{known_key}/") for known_key in known)
    if not is_part and key.removeprefix("losses/") not in groups:
        available = [f"{name}/{known_key}" for known_key in known]
        raise ConfigError(unknown_name("metric", str(metric), available, at="checkpointer.best_metric"))


def check_hosts(trainer: Experiment) -> None:
    """Refuses to begin where the hosts of a job differ, or have not each a share of the data of its own."""
    names = ("seed", "num_train_steps", "stop_after_steps", "steps_per_call")
    check_shares(trainer.train_ds, at="train_ds", others={name: getattr(trainer, name) for name in names})


_OBJECTS = (
    "checkpointer",
    "eval_ds",
    "evals",
    "init_transform",
    "model",
    "optimizer",
    "precision",
    "profiler",
    "rng_streams",
    "setup",
    "sharding",
    "train_ds",
    "train_losses",
    "train_metrics",
    "train_summaries",
    "trainstep",
    "writer",
)
_LEAST = {
    "log_metrics_every": 1,
    "log_summaries_every": 1,
    "microbatches": 1,
    "num_train_steps": 0,
    "steps_per_call": 1,
    "stop_after_steps": 0,
}


def _remat_policies() -> list[str]:
    # Those that are policies themselves; the others make one of arguments.
    return [name for name in dir(jax.checkpoint_policies) if "save" in name and not name.startswith(("_", "save_"))]
