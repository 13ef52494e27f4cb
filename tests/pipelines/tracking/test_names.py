"""Names and texts that MLflow accepts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name, _validate_param_name

from pipelines.tracking.names import MAX_NAME, NameTable, as_params, clean_name, clean_text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("optimizer.learning_rate", "optimizer.learning_rate"),
        ("train/losses/total", "train/losses/total"),
        ("model.layers[0].units", "model.layers.0.units"),
        ("evals['a.b'].ds", "evals.a.b.ds"),
        ("recall@5", "recall_at_5"),
        ("50%", "50_"),
        ("a//b", "a/_/b"),
        ("/a", "_/a"),
        ("../a", "_/a"),
        ("", "_"),
    ],
)
def test_l10_a_name_is_cleaned_by_the_documented_rule(name: str, expected: str) -> None:
    assert clean_name(name) == expected


@given(st.text(max_size=300))
def test_l10_every_name_becomes_one_that_mlflow_takes(name: str) -> None:
    _validate_metric_name(clean_name(name))
    _validate_param_name(clean_name(name))
    assert len(clean_name(name)) <= MAX_NAME
    assert clean_name(clean_name(name)) == clean_name(name)


@given(st.lists(st.text("ab@%_/[]'.", max_size=6), max_size=20))
def test_l10_two_names_of_a_run_never_become_one(names: list[str]) -> None:
    table = NameTable()
    cleaned = {name: table[name] for name in names}
    assert len(set(cleaned.values())) == len(cleaned)
    assert {name: table[name] for name in names} == cleaned


def test_l02_a_long_text_is_cut_and_says_so() -> None:
    cut = clean_text("x" * 7000)
    assert len(cut) == 6000
    assert cut.endswith("(7000 characters; whole in config.json)")
    assert clean_text("x" * 6000) == "x" * 6000


def test_parameters_are_texts() -> None:
    assert as_params({"a": 1.0, "b": "text", "c": None, "d[0]": (1, 2)}) == {
        "a": "1.0",
        "b": "text",
        "c": "None",
        "d.0": "(1, 2)",
    }
