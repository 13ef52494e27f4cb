"""`Trainer`: one experiment, described by its parts."""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import jax

from kauldron_core.errors import ConfigError
from kauldron_core.evals import Evaluator, usable_in_evaluation
from kauldron_core.forward import AuxiliariesState, Context, TrainState
from kauldron_core.train import best_metric, consistency, continuous, wiring
from kauldron_core.train import inherit as inherit_lib
from kauldron_core.train.directions import with_mode
from kauldron_core.train.experiment import Experiment
from kauldron_core.train.inherit import inherit
from kauldron_core.train.loop import iteration as loop
from kauldron_core.train.loop.events import Event
from kauldron_core.train.loop.progress import bar
from kauldron_core.train.loop.session import Until
from kauldron_core.train.loop.writer import NoWriter
from kauldron_core.train.step import eval_programs
from kauldron_core.train.step.context_specs import context_specs
from kauldron_core.train.step.source import bound_step, step_source
from kauldron_core.train.trial_config import resolve_trial


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Trainer(Experiment):
    """An experiment that can be trained, evaluated and resumed; its fields are those of `Experiment`.

    Parts take what they leave unset from here: the seed, the workdir, and (evaluators) data, losses and metrics.
    """

    def __post_init__(self):
        consistency.check(self)
        for name, part in _bound_parts(self).items():
            object.__setattr__(self, name, part)
        consistency.check_best_metric(self)
        best_metric.check_is_measured(self)
        object.__setattr__(self, "checkpointer", with_mode(self))

    def __post_konfig_resolve__(self, cfg: Any) -> None:
        object.__setattr__(self, "raw_cfg", cfg)
        self.trainstep.built_from(step_source(cfg))
        for name, evaluator in self.evals.items():
            if isinstance(evaluator, Evaluator) and not evaluator.run.is_standalone:
                evaluator.share_programs(eval_programs.of(cfg, name))

    @functools.cached_property
    def context_specs(self) -> Context:
        """Shapes of all that losses and metrics can read, by key path, at the end of a training step."""
        return context_specs(self.trainstep.program, self.state_specs, self.train_ds.element_spec)

    def train(self) -> TrainState:
        """Trains from the newest checkpoint, or from the beginning, and returns the final state."""
        if self.setup.eval_only:
            return loop.drain(self.iter_train())
        wiring.trace(self)
        with bar(self.setup.tqdm_info, num_steps=self.last_step, header=self._overview) as progress:
            return loop.drain(loop.iter_train(self, progress=progress))

    def _overview(self) -> str:
        """Returns one line about the model."""
        leaves = jax.tree.leaves(self.state_specs.params)
        count, size = sum(leaf.size for leaf in leaves), sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
        return f"{type(self.model).__name__}: {count:,} parameters in {len(leaves)} arrays, {size / 2**20:.2f} MiB"

    def iter_train(
        self, *, stop: threading.Event | None = None, until: Until | None = None, settle: bool = False
    ) -> Generator[Event, None, TrainState]:
        """Trains, and yields what happens. Closing the generator waits for a running save and ends data workers.

        Args:
          stop: When set (or on SIGTERM), the state is saved at the end of the running step and training ends as
            preempted.
          until: Is shown each record of metrics and returns why training ends with its step, else None. All is then
            done that is done after the last step, and training ends as stopped.
          settle: Wait for the metrics of each step that has any, and say with `Settled` that there will be no more of
            it: for whoever decides about this training by its metrics.
        """
        if self.setup.eval_only:
            return loop.iter_eval(self, stop=stop)
        return loop.iter_train(self, stop=stop, until=until, settle=settle)

    @classmethod
    def eval_only(cls, *, workdir: str | os.PathLike[str], evals: Mapping[str, Evaluator], **fields: Any) -> Trainer:
        """Returns the experiment of a trial with other evaluators, which only evaluates: `train` makes no update.

            cfg = kd.train.Trainer.eval_only(workdir="runs/demo/trials/0000", evals={...})

        Args:
          workdir: The folder of the trial; its config and checkpoints are read, and nothing is written to it.
          evals: Evaluators by name. What they leave unset is the trial's.
          **fields: Other fields to change, `eval_ds` for example.

        Raises:
          ConfigError: If the folder is not a trial's.
        """
        trainer = resolve_trial(workdir)
        if not isinstance(trainer, cls):
            raise ConfigError(f"{os.fspath(workdir)}: holds a {type(trainer).__name__}, not a {cls.__name__}.")
        setup = dataclasses.replace(trainer.setup, eval_only=True)
        return dataclasses.replace(trainer, evals=evals, setup=setup, writer=NoWriter(), **fields)

    def trace(self) -> None:
        """Raises what the step, its summaries and every evaluator would raise for their wiring. Computes nothing."""
        wiring.trace(self)

    def continuous_eval(self, names: str | Iterable[str] | None = None, **kwargs: Any) -> dict[str, AuxiliariesState]:
        """Evaluates checkpoints as another process writes them. See `continuous.continuous_eval`."""
        return continuous.continuous_eval(self, names, **kwargs)


def _bound_parts(trainer: Experiment) -> dict[str, Any]:
    """Returns the parts of `trainer` with what they inherit from it."""
    rng_streams = inherit(trainer.rng_streams, seed=trainer.seed)
    shared = {
        "model": trainer.model,
        "rng_streams": rng_streams,
        "sharding": trainer.sharding,
        "precision": trainer.precision,
    }
    eval_ds = inherit(trainer.eval_ds, seed=trainer.seed)
    return {
        "rng_streams": rng_streams,
        "train_ds": inherit(trainer.train_ds, seed=trainer.seed),
        "eval_ds": eval_ds,
        "checkpointer": inherit(trainer.checkpointer, workdir=trainer.workdir),
        "profiler": inherit(trainer.profiler, workdir=trainer.workdir),
        "writer": inherit(trainer.writer, workdir=trainer.workdir),
        "trainstep": bound_step(trainer, rng_streams=rng_streams),
        "evals": {
            name: _bound_evaluator(trainer, evaluator, name=name, ds=eval_ds, **shared)
            for name, evaluator in trainer.evals.items()
        },
    }


def _bound_evaluator(trainer: Experiment, evaluator: Evaluator, *, name: str, **shared: Any) -> Evaluator:
    bound = inherit(
        inherit_lib.replace(evaluator, name=name),
        losses=trainer.train_losses,
        metrics=usable_in_evaluation(trainer.train_metrics),
        **shared,
    )
    if bound.ds is not shared["ds"]:
        bound = inherit_lib.replace(bound, ds=inherit(bound.ds, seed=trainer.seed))
    # Any object with `evaluate` may stand here; ours tell at once what they lack.
    if hasattr(bound, "check"):
        bound.check()
    return bound
