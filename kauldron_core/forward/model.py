"""The forward pass of a Flax linen module whose `Key` fields say where its arguments are."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax

from kauldron_core import kontext
from kauldron_core.errors import ConfigError
from kauldron_core.forward.context import Context
from kauldron_core.forward.precision import Precision, cast_like
from kauldron_core.forward.rngs import RngStreams
from kauldron_core.modules import set_train_property

_INTERMEDIATES = "intermediates"


@dataclasses.dataclass(frozen=True, eq=False)
class ForwardPass:
    """A model with its random streams, and with those who read what it computed.

    Attributes:
      model: The module.
      rng_streams: Its random streams.
      readers: Losses and metrics; inner outputs are recorded only if a key of one of them asks for it.
      method: Which method of the model is called, with those keys that it takes; None is `__call__`, with all.
      precision: In which types the model computes; None leaves everything as it is.
    """

    model: nn.Module
    rng_streams: RngStreams
    readers: Sequence[Any] = ()
    method: str | None = None
    precision: Precision | None = None

    def init(self, batch: Any) -> tuple[Any, dict[str, Any]]:
        """Returns new parameters and the other collections of the model. Traceable; only shapes of `batch` count."""
        variables = dict(nn.unbox(self.init_variables(batch)))
        return variables.pop("params", {}), variables

    def init_variables(self, batch: Any) -> dict[str, Any]:
        """Returns all variables by collection as the model makes them, with the metadata that Flax may put on them."""
        with set_train_property(True):
            arguments = self._arguments(Context(step=0, batch=batch))
            variables = self.model.init(self.rng_streams.init_rngs(), method=self.method, **arguments)
        return {name: value for name, value in variables.items() if name != _INTERMEDIATES}

    def train(self, context: Context, *, part: Any = None) -> Context:
        """Returns `context` with `preds`, `interms` and the updated `collections` of a training step. Traced.

        Args:
          context: Holds step, batch, parameters and collections.
          part: Which part of a batch this is, where one is worked off in parts; each has its own random bits.
        """
        rngs = self.rng_streams.train_rngs(context.step)
        if part is not None:
            rngs = {name: jax.random.fold_in(key, part) for name, key in rngs.items()}
        return self._apply(context, rngs=rngs, is_training=True, mutable=list(context.collections))

    def evaluate(self, context: Context) -> Context:
        """Returns `context` with `preds` and `interms`; nothing of the model changes. Traced."""
        rngs = self.rng_streams.eval_rngs(context.step)
        return self._apply(context, rngs=rngs, is_training=False, mutable=[])

    def _apply(self, context: Context, *, rngs: dict[str, Any], is_training: bool, mutable: list[str]) -> Context:
        records = any(reads(reader, "interms") for reader in self.readers)
        seen = context
        if self.precision is not None:
            params, batch = self.precision.before((context.params, context.batch))
            seen = context.replace(params=params, batch=batch)
        with set_train_property(is_training):
            preds, changed = self.model.apply(
                {"params": seen.params, **seen.collections},
                **self._arguments(seen),
                method=self.method,
                rngs=rngs,
                mutable=[*mutable, _INTERMEDIATES] if records else mutable,
                capture_intermediates=records,
            )
        changed = dict(changed)
        interms = changed.pop(_INTERMEDIATES, None)
        if self.precision is not None:
            preds, interms = self.precision.after((preds, interms))
            changed = cast_like(changed, context.collections)
        return context.replace(preds=preds, interms=interms, collections={**context.collections, **changed})

    def _arguments(self, context: Context) -> dict[str, Any]:
        if self.method is None:
            return kontext.resolve_from_keyed_obj(context, self.model, func=self.model.__call__)
        function = getattr(self.model, self.method, None)
        if not callable(function):
            raise ConfigError(f"method: {type(self.model).__name__} has no method {self.method!r}.")
        # The keys are those of the whole model; a part of it may need fewer.
        taken = inspect.signature(function).parameters
        keys = {name: key for name, key in kontext.get_keypaths(self.model).items() if name in taken}
        return kontext.resolve_from_keypaths(context, keys, at=type(self.model).__name__)


def reads(reader: Any, field: str) -> bool:
    """Returns whether a key of `reader`, a loss or metric or model, starts at `field` of the context."""
    for key in jax.tree.leaves(kontext.get_keypaths(reader)):
        text = str(key).strip()
        if text == field or text.startswith((f"{field}.", f"{field}[")):
            return True
    return False
