"""Decoding: what comes out is what a few lines of plain Python find, with a cache and without."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evaluators
from evaluators import decode
from evaluators.decode.decoders import keep_top
from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError
from tests.evaluators.decode.tiny_lm import EOS, VOCABULARY, TinyCachedLM, TinyLM, TinyPrefillingLM, state_of

MODEL = TinyLM(shift="batch.shift")
CACHED = TinyCachedLM(shift="batch.shift")
PREFILLING = TinyPrefillingLM(shift="batch.shift")
STATE = state_of(MODEL, seed=3)
WITH_EOS = {"decoder_input_tokens": np.zeros((3, 4), np.int32), "shift": np.array([0.3, -1.0, 2.0], np.float32)}


@functools.cache
def next_log_probabilities(prefix: tuple[int, ...], shift: float) -> np.ndarray:
    # Padded to one length, so that it compiles once; the model is causal.
    length = 12
    logits = _full_logits(STATE.params, jnp.array([[*prefix, *[0] * (length - len(prefix))]]), jnp.array([shift]))
    return np.asarray(jax.nn.log_softmax(logits[0, len(prefix) - 1]), np.float64)


@jax.jit
def _full_logits(params: Any, tokens: Any, shift: Any) -> Any:
    return MODEL.apply({"params": params}, tokens, shift)


def penalized(score: float, length: int, penalty: float) -> float:
    return score / ((5 + length) / 6) ** penalty


def plain_beam(shift: float, *, width: int, max_len: int, penalty: float, prompt: tuple[int, ...] = ()) -> list[Any]:
    """Returns (score, tokens) of the best sequences, best first, without any stop before `max_len`."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    for _ in range(max_len):
        longer = [
            (score + next_log_probabilities((0, *prompt, *tokens), shift)[token], (*tokens, token))
            for score, tokens in live
            for token in range(VOCABULARY)
        ]
        finished += [(penalized(score, len(t), penalty), t) for score, t in longer if t[-1] == EOS]
        finished = sorted(finished, reverse=True)[:width]
        live = sorted([entry for entry in longer if entry[1][-1] != EOS], reverse=True)[:width]
    finished += [(penalized(score, len(tokens), penalty), tokens) for score, tokens in live]
    return sorted(finished, reverse=True)[:width]


def every_sequence(shift: float, *, max_len: int, penalty: float) -> list[Any]:
    """Returns (score, tokens) of every sequence there is, best first."""
    found = []
    for length in range(1, max_len + 1):
        for tokens in itertools.product(range(VOCABULARY), repeat=length):
            ends = tokens[-1] == EOS
            if EOS in tokens[:-1] or not (ends or length == max_len):
                continue
            score = sum(next_log_probabilities((0, *tokens[:i]), shift)[token] for i, token in enumerate(tokens))
            found.append((penalized(score, length, penalty), tokens))
    return sorted(found, reverse=True)


def sequences(decoded: decode.Decoded, row: int) -> list[tuple[float, tuple[int, ...]]]:
    tokens, scores, lengths = (np.asarray(part)[row] for part in decoded)
    return [
        (float(s), tuple(t[:n].tolist())) for t, s, n in zip(tokens, scores, lengths, strict=True) if np.isfinite(s)
    ]


def check_same(found: list[Any], expected: list[Any]) -> None:
    assert [tokens for _, tokens in found] == [tokens for _, tokens in expected]
    np.testing.assert_allclose([score for score, _ in found], [score for score, _ in expected], rtol=1e-4, atol=1e-5)


@functools.cache
def program(model: Any, decoder: decode.Decoder) -> decode.DecodeProgram:
    """Returns the program, one for all tests: compiling is what takes the time here."""
    return decode.DecodeProgram(model, decoder)


GREEDY = decode.Greedy(max_len=8)
BEAM = decode.Beam(width=3, num_sequences=3, max_len=5, prompt="batch.prompt")
WITH_PROMPTS = {**WITH_EOS, "prompt": np.zeros((3, 3), np.int32), "padding_mask": np.ones(3, bool)}


@pytest.mark.parametrize(("model", "penalty"), [(MODEL, 0.8), (CACHED, 0.0)])
def test_beam_search_is_that_of_plain_python(model: Any, penalty: float) -> None:
    width = 4 if penalty else 3
    decoder = dataclasses.replace(BEAM, width=width, num_sequences=width, length_penalty=penalty)
    found = program(model, decoder)(STATE, WITH_PROMPTS)
    for row, shift in enumerate(WITH_EOS["shift"].tolist()):
        check_same(sequences(found, row), plain_beam(shift, width=width, max_len=5, penalty=penalty))


def test_a_beam_as_wide_as_there_are_sequences_finds_the_best_of_all() -> None:
    expected = every_sequence(0.3, max_len=3, penalty=1.0)
    decoder = decode.Beam(width=len(expected), num_sequences=len(expected), max_len=3, length_penalty=1.0)
    batch = {key: value[:1] for key, value in WITH_EOS.items()}
    check_same(sequences(program(CACHED, decoder)(STATE, batch), 0), expected)


@pytest.mark.parametrize("model", [MODEL, CACHED])
def test_greedy_takes_the_likeliest_and_stops_at_the_eos(model: Any) -> None:
    found = program(model, GREEDY)(STATE, WITH_EOS)
    for row, shift in enumerate(WITH_EOS["shift"].tolist()):
        tokens: tuple[int, ...] = ()
        score = 0.0
        while len(tokens) < 8 and EOS not in tokens:
            following = next_log_probabilities((0, *tokens), shift)
            tokens, score = (*tokens, int(following.argmax())), score + following.max()
        check_same(sequences(found, row), [(score, tokens)])
    assert found.lengths.min() < 8, "a row that ends before the last position is what this is about"


@pytest.mark.parametrize(
    ("model", "decoder"), [(CACHED, BEAM), (MODEL, decode.Greedy(max_len=5, prompt="batch.prompt"))]
)
def test_prompts_of_different_lengths_are_followed_each_by_its_own_tokens(model: Any, decoder: Any) -> None:
    width = getattr(decoder, "width", 1)
    prompts = [(2, 3, 4), (5,), ()]
    # One has its padding on the left.
    given = np.array([[2, 3, 4], [0, 0, 5], [0, 0, 0]], np.int32)
    found = program(model, decoder)(STATE, {**WITH_PROMPTS, "prompt": given})
    for row, (prompt, shift) in enumerate(zip(prompts, WITH_EOS["shift"].tolist(), strict=True)):
        check_same(sequences(found, row), plain_beam(shift, width=width, max_len=5, penalty=0.0, prompt=prompt))


DRAWN = decode.Sample(max_len=5, num_samples=3, prompt="batch.prompt")


@pytest.mark.parametrize("decoder", [BEAM, pytest.param(DRAWN, marks=pytest.mark.soak)])
def test_prompts_taken_at_once_give_what_they_give_token_by_token(decoder: Any) -> None:
    one_by_one, at_once = program(CACHED, decoder), program(PREFILLING, decoder)
    prompts = ([[2, 3, 4], [5, 2, 0], [0, 3, 3]], [[2, 3, 4], [5, 5, 2], [4, 3, 3]], [[2, 3, 4], [0, 5, 0], [0, 0, 0]])
    for given in prompts:
        # The padded row has no tokens, and is none that the others wait for.
        batch = {**WITH_PROMPTS, "prompt": np.array([*given, [0, 0, 0]], np.int32)}
        batch = {**batch, "shift": np.array([0.3, -1.0, 2.0, 0.0], np.float32)}
        batch |= {"padding_mask": np.arange(4) < 3, "decoder_input_tokens": np.zeros((4, 4), np.int32)}
        expected, found = one_by_one(STATE, batch), at_once(STATE, batch)
        np.testing.assert_array_equal(found.tokens, expected.tokens)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


@pytest.mark.parametrize(
    ("model", "decoder"), [(CACHED, BEAM), (MODEL, decode.Greedy(max_len=5, prompt="batch.prompt"))]
)
def test_padded_rows_are_left_out(model: Any, decoder: Any) -> None:
    mask = np.array([True, False, True])
    whole = program(model, decoder)(STATE, WITH_PROMPTS)
    padded = program(model, decoder)(STATE, {**WITH_PROMPTS, "padding_mask": mask})
    np.testing.assert_array_equal(padded.tokens[mask], whole.tokens[mask])
    assert not padded.tokens[1].any() and not padded.lengths[1].any() and not padded.scores[1].any()


def test_without_eos_every_row_is_full() -> None:
    found = program(CACHED, decode.Greedy(max_len=9, eos_id=None))(STATE, WITH_EOS)
    assert found.lengths.tolist() == [[9]] * 3


SAMPLE = decode.Sample(max_len=6, num_samples=400, seed=5, temperature=2.0)


def test_samples_are_those_of_the_row_wherever_it_stands() -> None:
    found = program(CACHED, SAMPLE)(STATE, WITH_EOS, row_ids=np.array([10, 11, 12]))
    turned = {key: value[::-1] for key, value in WITH_EOS.items()}
    again = program(CACHED, SAMPLE)(STATE, turned, row_ids=np.array([12, 11, 10]))
    np.testing.assert_array_equal(again.tokens[::-1], found.tokens)


def test_the_frequencies_of_samples_are_the_probabilities() -> None:
    tokens = np.asarray(program(CACHED, SAMPLE)(STATE, WITH_EOS).tokens)
    for row, shift in enumerate(WITH_EOS["shift"].tolist()):
        counts = np.bincount(tokens[row, :, 0], minlength=VOCABULARY)
        expected = np.exp(next_log_probabilities((0,), shift) / 2)
        np.testing.assert_allclose(counts / 400, expected / expected.sum(), atol=0.08)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"top_k": 2}, [1, 3]),
        ({"top_p": 0.5}, [3]),
        ({"top_p": 0.51}, [1, 3]),
        ({"top_k": 3, "top_p": 0.99}, [0, 1, 3]),
    ],
)
def test_the_unlikely_is_not_drawn(settings: dict[str, Any], kept: list[int]) -> None:
    logits = jnp.log(jnp.array([[0.15, 0.25, 0.1, 0.5]]))
    assert np.flatnonzero(np.isfinite(keep_top(logits, **settings)[0])).tolist() == kept


def test_one_likeliest_token_is_greedy() -> None:
    sampled = program(CACHED, decode.Sample(max_len=8, top_k=1))(STATE, WITH_EOS)
    np.testing.assert_array_equal(sampled.tokens, program(CACHED, GREEDY)(STATE, WITH_EOS).tokens)


def test_a_batch_of_the_same_shape_compiles_nothing() -> None:
    greedy = program(CACHED, GREEDY)
    before = greedy(STATE, WITH_EOS)
    count = greedy._compiled._cache_size()
    other = STATE.replace(params=jax.tree.map(lambda leaf: leaf * 0.5, STATE.params))
    assert (greedy(other, WITH_EOS).scores != before.scores).any()
    assert greedy._compiled._cache_size() == count


def test_the_table_has_a_row_for_each_sequence(tmp_path: pathlib.Path) -> None:
    found = program(CACHED, BEAM)(STATE, WITH_PROMPTS)
    path = tmp_path / "decoded.parquet"
    decode.write_decoded(path, found, ["a", None, "c"], to_text=lambda tokens: " ".join(map(str, tokens)))
    rows = rundir.read_examples(path)
    assert [(row["id"], row["rank"]) for row in rows] == [(name, rank) for name in "ac" for rank in range(3)]
    assert (rows[3]["score"], tuple(rows[3]["tokens"])) == sequences(found, 2)[0]
    assert rows[0]["text"] == " ".join(map(str, rows[0]["tokens"]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: decode.Greedy(max_len=0), r"Greedy\.max_len: must be at least 1"),
        (lambda: decode.Greedy(max_len=1, eos_id=0), r"eos_id: 0 is the pad_id"),
        (lambda: decode.Sample(max_len=1, temperature=0.0), r"temperature: 0\.0 .*Greedy"),
        (lambda: decode.Sample(max_len=1, top_p=1.5), r"top_p"),
        (lambda: decode.Beam(max_len=1, width=2, num_sequences=3), r"num_sequences: must be 1 to the width 2"),
        (lambda: decode.DecodeProgram(MODEL, decode.Greedy(max_len=1, use_cache=True)).uses_cache, r"no init_cache"),
        (
            lambda: decode.DecodeProgram(MODEL, decode.Greedy(max_len=1, eos_id=6))(STATE, WITH_EOS),
            r"eos_id: 6 is outside of the vocabulary of 6",
        ),
    ],
)
def test_what_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_decoders_are_config_entries() -> None:
    with konfig.imports():
        import evaluators as proxies
    node = proxies.Beam(width=4, max_len=16)
    assert konfig.resolve(konfig.from_json(konfig.to_json(node))) == evaluators.Beam(width=4, max_len=16)
