"""What key paths can reach, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kauldron_core import kontext
from kauldron_core.forward import Context
from kauldron_core.inspect.specs import spec_text
from kauldron_core.inspect.table import Table

if TYPE_CHECKING:
    from kauldron_core.train import Trainer


def context_specs(trainer: Trainer) -> Context:
    """Returns `trainer.context_specs`."""
    return trainer.context_specs


def get_context_structure(trainer: Trainer) -> Table:
    """Returns every key path that losses and metrics can use, with dtype and shape."""
    leaves = kontext.flatten_with_path(trainer.context_specs)
    return Table(("Key", "Spec"), tuple((name, spec_text(leaf)) for name, leaf in leaves.items()))
