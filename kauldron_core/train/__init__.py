"""Training: the trainer, its step, its loop, and what it tells."""

from kauldron_core.forward import AuxiliariesState, Context, Precision, RngStream, RngStreams, TrainState
from kauldron_core.train.continuous import continuous_eval
from kauldron_core.train.directions import inline_losses, metric_directions
from kauldron_core.train.load import BestCheckpoint, best_checkpoint, best_step, load_run, load_trial
from kauldron_core.train.loop.events import Done, Evaluated, Event, Logged, Saved, Settled, Summarized
from kauldron_core.train.loop.iteration import iter_train
from kauldron_core.train.loop.profiler import Profiler
from kauldron_core.train.loop.setup import Setup, TqdmInfo
from kauldron_core.train.loop.writer import EventLog, EventsWriter, NoWriter, Writer
from kauldron_core.train.step.multi_step import MultiContext, MultiTrainStep
from kauldron_core.train.step.program import Outputs, StepReport
from kauldron_core.train.step.trainstep import TrainStep
from kauldron_core.train.trainer import Trainer
from kauldron_core.train.trial_config import load_config

__all__ = [
    "AuxiliariesState",
    "BestCheckpoint",
    "Context",
    "Done",
    "Evaluated",
    "Event",
    "EventLog",
    "EventsWriter",
    "Logged",
    "MultiContext",
    "MultiTrainStep",
    "NoWriter",
    "Outputs",
    "Precision",
    "Profiler",
    "RngStream",
    "RngStreams",
    "Saved",
    "Settled",
    "Setup",
    "StepReport",
    "Summarized",
    "TqdmInfo",
    "TrainState",
    "TrainStep",
    "Trainer",
    "Writer",
    "best_checkpoint",
    "best_step",
    "continuous_eval",
    "inline_losses",
    "iter_train",
    "load_config",
    "load_run",
    "load_trial",
    "metric_directions",
]
