"""`Setup`: what a process prepares before it trains or evaluates."""

from __future__ import annotations

import dataclasses
import logging
import sys
from typing import Any

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TqdmInfo:
    """The progress bar of `Trainer.train`.

    Attributes:
      desc: What stands in front of it.
      disable: Whether there is none. None shows it on a terminal only.
    """

    desc: str = "train"
    disable: bool | None = None

    @property
    def is_shown(self) -> bool:
        """Whether there is a bar."""
        return not self.disable if self.disable is not None else sys.stderr.isatty()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """How the process that runs an experiment behaves.

    Attributes:
      tags: Words to find the run by; a comma separates them in a string.
      tqdm_info: The progress bar.
      eval_only: Whether the experiment is only evaluated, see `Trainer.eval_only`.
      watchdog_factor: How many times the median step a step may take before the stacks of all threads are written to
        the standard error; None never looks.
      watchdog_min_s: The least time, in seconds, after which that happens.
    """

    tags: Any = ()
    tqdm_info: TqdmInfo = dataclasses.field(default_factory=TqdmInfo)
    eval_only: bool = False
    watchdog_factor: float | None = 20.0
    watchdog_min_s: float = 60.0

    def __post_init__(self):
        tags = self.tags.split(",") if isinstance(self.tags, str) else self.tags
        object.__setattr__(self, "tags", tuple(tag.strip() for tag in tags))

    def log_status(self, message: str) -> None:
        """Says what the process is doing now."""
        _logger.info("%s", message)
