"""The namespace of a config: `from kauldron_core import kd`."""

from kauldron_core import (
    ckpts,
    data,
    evals,
    inspect,
    konfig,
    kontext,
    ktyping,
    losses,
    metrics,
    optim,
    packs,
    random,
    rundir,
    sharding,
    summaries,
    sweeps,
    train,
    typing,
)
from kauldron_core import modules as nn
from kauldron_core.train import load_run, load_trial

__all__ = [
    "ckpts",
    "data",
    "evals",
    "inspect",
    "konfig",
    "kontext",
    "ktyping",
    "load_run",
    "load_trial",
    "losses",
    "metrics",
    "nn",
    "optim",
    "packs",
    "random",
    "rundir",
    "sharding",
    "summaries",
    "sweeps",
    "train",
    "typing",
]

# So that `cfg = kd.train.Trainer()` can be filled from below: `cfg.evals.test = ...`, `cfg.ref.workdir`.
konfig.register_default_values(
    konfig.ConfigDict(
        {
            "__qualname__": "kauldron_core.kd:train.Trainer",
            "train_losses": {},
            "train_metrics": {},
            "train_summaries": {},
            "schedules": {},
            "evals": {},
            "setup": {"__qualname__": "kauldron_core.kd:train.Setup"},
            "aux": {},
            "workdir": None,
        }
    )
)
