"""Names and texts that MLflow accepts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name, _validate_param_name

from pipelines.tracking.names import MAX_NAME, as_params, clean_name, clean_text, original_name, parameter_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("optimizer.learning_rate", "optimizer.learning_rate"),
        ("train/losses/total", "train/losses/total"),
        ("recall_at_5", "recall_at_5"),
        ("quantile_0.5/cuda:0", "quantile_0.5/cuda:0"),
        ("recall@5", "recall_x40_5"),
        ("50%", "50_x25_"),
        ("a, b", "a_x2c_ b"),
        ("max_x40_", "max_x5f_x40_"),
        ("a//b", "a/_x_/b"),
        ("/a", "_x_/a"),
        ("../a", "_x2e-2e_/a"),
        ("..a", "_x2e_.a"),
        ("", "_x_"),
    ],
)
def test_a_name_is_cleaned_by_the_documented_rule(name: str, expected: str) -> None:
    """L10: a name is cleaned by the documented rule."""
    assert clean_name(name) == expected


@given(st.text(max_size=300))
def test_every_name_becomes_one_that_mlflow_takes(name: str) -> None:
    """L10: every name becomes one that mlflow takes."""
    _validate_metric_name(clean_name(name))
    _validate_param_name(clean_name(name))
    assert len(clean_name(name)) <= MAX_NAME


@given(st.text(max_size=30) | st.text("_x40-25@%/. ", max_size=12))
def test_a_name_can_be_turned_back_so_two_never_become_one(name: str) -> None:
    """F36: `recall@5` beside `recall_at_5`, `a,b` beside `a=b`: whoever came first in a run had the plain name."""
    assert original_name(clean_name(name)) == name


def test_long_names_that_differ_at_their_end_stay_apart() -> None:
    """F36: a name that is cut has a hash of the whole."""
    assert clean_name("a" * 300) != clean_name("a" * 299)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("model.layers[0].units", "model.layers.0.units"),
        ("optimizer.learning_rate", "optimizer.learning_rate"),
        ("evals['a.b'].ds", "evals_x5b-27_a.b_x27-5d_.ds"),
    ],
)
def test_parameters_are_named_by_their_paths(path: str, expected: str) -> None:
    assert parameter_name(path) == expected


def test_a_long_text_is_cut_and_says_so() -> None:
    """L02: a long text is cut and says so."""
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
