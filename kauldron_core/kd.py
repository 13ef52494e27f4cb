"""The namespace of a config: `from kauldron_core import kd`."""

from kauldron_core import ckpts, data, evals, konfig, kontext, losses, metrics, random, rundir, train
from kauldron_core import modules as nn
from kauldron_core.train import load_run, load_trial

__all__ = [
    "ckpts",
    "data",
    "evals",
    "konfig",
    "kontext",
    "load_run",
    "load_trial",
    "losses",
    "metrics",
    "nn",
    "random",
    "rundir",
    "train",
]
