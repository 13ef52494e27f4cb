"""SeqIO's metrics: the numbers of `seqio.Evaluator`, each example once, whatever the batches and the hosts."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest

import evaluators
from evaluators.seqio_metrics import LogLikelihood
from kauldron_core import kd, konfig, kontext, rundir
from kauldron_core.errors import ConfigError, RunFailed
from kauldron_core.evals import Collected, Final
from kauldron_core.forward import TrainState

pytestmark = pytest.mark.seqio

LENGTH, VOCABULARY, CONFIDENCE = 12, 259, 4.0
SIZES = (1, 5, 13, 41)


class Copier(nn.Module):
    """Says the inputs again, whatever it has said before."""

    inputs: kontext.Key = "batch.encoder_input_tokens"
    said: kontext.Key = "batch.decoder_input_tokens"

    @nn.compact
    def __call__(self, inputs, said):
        confidence = self.param("confidence", nn.initializers.constant(CONFIDENCE), ())
        return confidence * jax.nn.one_hot(inputs[:, : said.shape[1]], VOCABULARY)


STATE = TrainState.create(params={"confidence": np.float32(CONFIDENCE)}, collections={}, opt_state=())


def texts(size: int) -> dict[str, list[str]]:
    """Returns texts of several lengths; every third target is another one than its input."""
    inputs = [f"{number}" + "x" * (number % 6) for number in range(size)]
    return {"inputs": inputs, "targets": [text[::-1] if i % 3 == 2 else text for i, text in enumerate(inputs)]}


def exact_match(targets, predictions):
    return {"exact": np.mean([t == p for t, p in zip(targets, predictions, strict=True)])}


def order(targets, predictions):
    """A number that changes when two examples change places."""
    return {"order": float(sum(i * len(t + p) for i, (t, p) in enumerate(zip(targets, predictions, strict=True))))}


def mean_score(targets, scores):
    return {"score": float(np.mean(scores)), "weighted": float(np.dot(scores, np.arange(len(targets))))}


def with_aux(targets, predictions, aux_values):
    return {"aux": float(np.sum(aux_values["scores"])), "count": len(targets)}


def upper(text, example, is_target):
    return text.upper()


@functools.cache
def task(size: int) -> Any:
    import seqio
    import tensorflow as tf

    def dataset(split, shuffle_files, seed=None):
        return tf.data.Dataset.from_tensor_slices(texts(size))

    feature = seqio.Feature(seqio.ByteVocabulary())
    return seqio.TaskRegistry.add(
        f"kdr_metrics_{size}",
        source=seqio.FunctionDataSource(dataset, splits=["validation"]),
        preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim],
        output_features={"inputs": feature, "targets": feature},
        postprocess_fn=upper,
        metric_fns=[exact_match, order, mean_score, with_aux],
    )


@functools.cache
def expected(size: int) -> dict[str, float]:
    """Returns what `seqio.Evaluator` says, with predictions and scores of plain NumPy."""
    import seqio

    def predict(dataset, model_feature_shapes=None):
        return [(int(index), features["encoder_input_tokens"]) for index, features in dataset.as_numpy_iterator()]

    def score_of(inputs, targets, weights):
        logits = CONFIDENCE * np.eye(VOCABULARY)[inputs]
        gained = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return float((gained[np.arange(len(targets)), targets] * weights).sum())

    def score(dataset, model_feature_shapes=None):
        names = ("encoder_input_tokens", "decoder_target_tokens", "decoder_loss_weights")
        return [
            (int(index), score_of(*(features[n] for n in names))) for index, features in dataset.as_numpy_iterator()
        ]

    def predict_with_aux(dataset, model_feature_shapes=None):
        predictions = predict(dataset)
        return predictions, {"scores": [score_of(t, t, t > 0) for _, t in predictions]}

    task(size)
    reference = seqio.Evaluator(
        f"kdr_metrics_{size}",
        seqio.EncDecFeatureConverter(pack=False),
        sequence_length={"inputs": LENGTH, "targets": LENGTH},
    )
    metrics, _ = reference.evaluate(
        compute_metrics=True, predict_fn=predict, score_fn=score, predict_with_aux_fn=predict_with_aux
    )
    return {
        f"metrics/kdr_metrics_{size}/{name}": value for name, value in metrics.result()[f"kdr_metrics_{size}"].items()
    }


def data(source: Any, **fields: Any) -> kd.data.SeqIO:
    lengths = {"inputs": LENGTH, "targets": LENGTH}
    return kd.data.SeqIO(
        source, **{"feature_lengths": lengths, "split": "validation", "feature_converter": "enc_dec", **fields}
    )


DECODER = evaluators.Greedy(max_len=LENGTH)


@functools.cache
def evaluator(size: int, batch_size: int, **fields: Any) -> evaluators.SeqioEvaluator:
    ds = data(functools.partial(task, size), batch_size=batch_size)
    return evaluators.SeqioEvaluator(run=Final(), ds=ds, decoder=DECODER, model=Copier(), name="wmt", **fields)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("batch_size", [2, 8])
def test_the_numbers_are_those_of_seqio(size: int, batch_size: int) -> None:
    result = evaluator(size, batch_size).evaluate(STATE)
    assert result.values == pytest.approx(expected(size), rel=1e-5)
    assert result.values[f"metrics/kdr_metrics_{size}/exact"] == expected(size)[f"metrics/kdr_metrics_{size}/exact"]
    assert result.num_examples == size


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("batch_size", [2, 8])
def test_two_hosts_give_each_example_once(size: int, batch_size: int) -> None:
    whole = evaluator(size, batch_size)
    shares = [whole.collect(STATE, shard_index=host, shard_count=2) for host in range(2)]
    assert sum(share.num_examples for share in shares) == size
    # In the wrong order, and one of them twice: outputs join by their example.
    merged = functools.reduce(Collected.merge, [shares[1], shares[0], shares[1]])
    assert whole.result(merged, step=0, seconds=1.0).values == pytest.approx(expected(size), rel=1e-5)


def test_a_mixture_gives_the_numbers_of_each_of_its_tasks() -> None:
    import seqio

    mixture = seqio.Mixture("kdr_mixed", [(task(5), 1.0), (task(13), 1.0)])
    both = dataclasses.replace(evaluator(5, 8), ds=data(lambda: mixture, batch_size=8))
    assert both.evaluate(STATE).values == pytest.approx({**expected(5), **expected(13)}, rel=1e-5)


def test_examples_are_kept_for_a_person_to_read(tmp_path: Any) -> None:
    result = evaluator(13, 8).evaluate(STATE)
    path = tmp_path / "examples.parquet"
    rundir.write_examples(path, result.examples or [])
    rows = rundir.read_examples(path)
    wanted = texts(13)
    assert [row["id"] for row in rows] == list(range(13))
    assert [row["input"] for row in rows] == [row["prediction"] for row in rows] == wanted["inputs"]
    assert [row["target"] for row in rows] == wanted["targets"]
    assert max(row["score"] for row in rows) < 0
    assert len(dataclasses.replace(evaluator(13, 8), keep_examples=3).evaluate(STATE).examples or []) == 3


def test_the_first_examples_only() -> None:
    first = dataclasses.replace(evaluator(13, 8), num_examples=5).evaluate(STATE)
    assert first.num_examples == 5
    assert list(first.values.values()) == pytest.approx(list(expected(5).values()), rel=1e-5)


def test_in_a_config() -> None:
    with konfig.imports():
        import evaluators as proxies
    node = proxies.SeqioEvaluator(run=None, decoder=proxies.Greedy(max_len=4))
    assert konfig.resolve(konfig.from_json(konfig.to_json(node))).decoder == evaluators.Greedy(max_len=4)


def test_packing_is_refused_with_the_reason() -> None:
    import seqio

    with pytest.raises(ConfigError, match=r"evals\.eval\.ds\.pack: .* packed row holds several examples"):
        evaluators.SeqioEvaluator(run=Final(), ds=data("any", pack=True))
    packing = data(functools.partial(task, 5), feature_converter=lambda: seqio.EncDecFeatureConverter(pack=True))
    with pytest.raises(ConfigError, match="packed row holds several examples"):
        dataclasses.replace(evaluator(5, 2), ds=packing).evaluate(STATE)


def test_what_cannot_work_is_refused_with_the_reason() -> None:
    good = evaluator(5, 2)
    with pytest.raises(ConfigError, match=r"evals\.wmt\.decoder: unset, .*'kdr_metrics_5' need predictions"):
        dataclasses.replace(good, decoder=None).evaluate(STATE)
    with pytest.raises(ConfigError, match=r"has no SeqIO task\. Use kd\.data\.SeqIO"):
        dataclasses.replace(good, ds=[]).evaluate(STATE)
    keep = kd.data.Elements(keep=["encoder_input_tokens", "decoder_input_tokens"])
    with pytest.raises(ConfigError, match="drop 'example_index'"):
        dataclasses.replace(good, ds=dataclasses.replace(good.ds, transforms=[keep])).evaluate(STATE)
    collected = good.collect(STATE)
    del collected.states.metric_states["kdr_metrics_5"].by_example[3]
    with pytest.raises(RunFailed, match="1 of 5 examples have no output, the first is 3"):
        good.result(collected, step=0, seconds=0.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"score": LogLikelihood(targets="batch.decoder_target_token")},
        {"decoder": dataclasses.replace(DECODER, prompt="batch.encoder_input_token")},
    ],
    ids=["score", "prompt"],
)
def test_a_miss_is_found_with_shapes(fields: dict[str, Any]) -> None:
    """F08: a key that leads nowhere was met at the first evaluation only."""
    shapes = jax.eval_shape(lambda: STATE)
    evaluator(5, 4).trace(shapes)
    with pytest.raises(kontext.PathLookupError, match=r"has no '(decoder_target|encoder_input)_token'"):
        dataclasses.replace(evaluator(5, 4), **fields).trace(shapes)
