"""`DecodeEvaluator`: decodes a data set, compares with targets, keeps what was said."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from evaluators.decode.decoders import Decoded, Decoder
from evaluators.decode.program import DecodeProgram
from evaluators.decode.tables import decoded_rows
from kauldron_core import kontext
from kauldron_core.evals import Collected, CollectingEvaluator, EvalResult, EvaluationStopped, shard_of
from kauldron_core.evals.per_example import without_texts
from kauldron_core.forward import AuxiliariesState, RngStreams, TrainState, padding_mask_of
from kauldron_core.metrics import AverageState
from kauldron_core.metrics.host import fetch
from kauldron_core.rundir import Better


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DecodeEvaluator(CollectingEvaluator):
    """Decodes every example and keeps the sequences as rows: id, rank, score, tokens.

    Its values are about the first sequence of each example: `metrics/score` and `metrics/length`, and with a target
    `metrics/exact_match`.

    Attributes:
      decoder: How to decode.
      target: Key of int[batch, length] tokens to compare with, up to the EOS; unset, nothing is compared.
      keep_examples: Of so many examples the sequences are kept, None keeps all.
    """

    decoder: Decoder
    target: str | None = None
    keep_examples: int | None = 1_000

    @property
    def directions(self) -> Mapping[str, Better]:
        return {} if self.target is None else {"metrics/exact_match": "higher"}

    def trace(self, state: TrainState) -> None:
        batch = without_texts(self.ds.for_eval().element_spec)
        self._program.trace(state, batch)
        if self.target is not None:
            kontext.get_by_path({"batch": batch}, self.target)

    def collect_share(
        self, state: TrainState, stop: threading.Event | None, shard_index: int, shard_count: int
    ) -> Collected[AuxiliariesState]:
        total = Collected(AuxiliariesState(), 0, [])
        ds = shard_of(self.ds.for_eval(), shard_index, shard_count)
        with contextlib.closing(iter(ds)) as batches:
            for number, batch in enumerate(batches):
                if stop is not None and stop.is_set():
                    raise EvaluationStopped(self.name)
                mask = np.asarray(fetch(padding_mask_of(batch)))
                places = (number * len(mask) + np.arange(len(mask))) * shard_count + shard_index
                decoded = Decoded(*fetch(tuple(self._program(state, batch, row_ids=places))))
                total = total.merge(self._batch(decoded, batch, places, mask))
        return total

    def result(self, collected: Collected[AuxiliariesState], *, step: int, seconds: float) -> EvalResult:
        examples = sorted(collected.examples or [], key=lambda row: (row["id"], row["rank"]))
        return super().result(dataclasses.replace(collected, examples=examples), step=step, seconds=seconds)

    def _batch(self, decoded: Decoded, batch: Any, places: np.ndarray, mask: np.ndarray) -> Collected[AuxiliariesState]:
        said = {"score": decoded.scores[:, 0], "length": decoded.lengths[:, 0]}
        if self.target is not None:
            targets = kontext.get_by_path({"batch": batch}, self.target)
            said["exact_match"] = self._is_match(decoded, np.asarray(fetch(targets)))
        count = np.asarray(mask.sum())
        states = {
            name: AverageState(total=np.asarray(values[mask].sum()), count=count) for name, values in said.items()
        }
        limit = self.keep_examples
        ids = [int(i) if real and (limit is None or i < limit) else None for i, real in zip(places, mask, strict=True)]
        return Collected(AuxiliariesState(metric_states=states), int(count), decoded_rows(decoded, ids))

    def _is_match(self, decoded: Decoded, targets: np.ndarray) -> np.ndarray:
        said = zip(decoded.tokens[:, 0], decoded.lengths[:, 0], targets, strict=True)
        return np.array([tokens[:length].tolist() == self._ended(target.tolist()) for tokens, length, target in said])

    def _ended(self, target: list[int]) -> list[int]:
        """Returns a target up to and with its EOS, or up to its padding."""
        for index, token in enumerate(target):
            if token == self.decoder.eos_id:
                return target[: index + 1]
            if token == self.decoder.pad_id:
                return target[:index]
        return target

    @functools.cached_property
    def _program(self) -> DecodeProgram:
        return DecodeProgram(self.model, self.decoder, self.rng_streams or RngStreams())
