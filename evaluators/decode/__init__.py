"""Decoding: greedy, sampling and beam search over any model that gives next-token logits, jitted and batched."""

from evaluators.decode.beam import Beam
from evaluators.decode.decoders import Decoded, Decoder, Greedy, OneByOne, Sample
from evaluators.decode.evaluator import DecodeEvaluator
from evaluators.decode.program import DecodeProgram
from evaluators.decode.steps import CachedModel, PrefillingModel
from evaluators.decode.tables import decoded_rows, write_decoded

__all__ = [
    "Beam",
    "CachedModel",
    "DecodeEvaluator",
    "DecodeProgram",
    "Decoded",
    "Decoder",
    "Greedy",
    "OneByOne",
    "PrefillingModel",
    "Sample",
    "decoded_rows",
    "write_decoded",
]
